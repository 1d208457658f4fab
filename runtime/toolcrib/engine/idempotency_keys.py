"""Idempotency keys: what identifies them, and the results that a session keeps in memory.

A journal keeps the results of the calls that it records (`engine.call_journal`); `MemoryKeys` keeps those of the others.
"""

from __future__ import annotations

from hashlib import sha256
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING, Call, Content, Failure, Outcome, Result
from toolcrib.core.text import canonical, compact_ascii, decode_json
from toolcrib.engine.middleware.budget import may_have_spent
from toolcrib.engine.middleware.call_failures import may_have_acted, without_attempts

LONGEST_KEY: Final = 255
"""Maximum length of an idempotency key, in characters."""

MOST_KEYS: Final = 10_000
"""Maximum number of results by idempotency key in the memory of a session."""

encode: Final = compact_ascii
"""ASCII only, because no database stores lone surrogates, which a Python program may pass in arguments."""


class Running(NamedTuple):
    """Another call with the same idempotency key runs."""


RUNNING: Final = Running()


class IdempotencyKeys(Protocol):
    """Remembers the results of calls with an idempotency key."""

    async def claim(self, call: Call) -> Result | Running | None:
        """Claim the key of a call. None: the call must be made; a result: it is the answer."""
        ...

    def release(self, call: Call, result: Result) -> None:
        """Keep the result of a call that was made, if it may have acted; otherwise free its key."""
        ...


class MemoryKeys:
    """Results by idempotency key in the memory of a session, for tools that no journal records.

    The oldest results are forgotten once there are `MOST_KEYS`.
    """

    def __init__(self) -> None:
        self._known: dict[str, _KnownKey] = {}
        self._lock = Lock()

    async def claim(self, call: Call) -> Result | Running | None:
        """Claim the key of a call; see `IdempotencyKeys`."""
        key, digest = key_digest_of(call), canonical([call.tool.name, call.arguments])
        with self._lock:
            found = self._known.setdefault(key, _KnownKey(call.id, digest, None))
        if found.digest != digest:
            return conflict(call)
        if found.result is not None:
            return repeated(result_from_json(decode_json(found.result)))
        return None if found.call == call.id else RUNNING

    def release(self, call: Call, result: Result) -> None:
        """Keep the result of a call that may have acted, or free its key; see `IdempotencyKeys`."""
        key = key_digest_of(call)
        acted = has_acted(call, result)
        with self._lock:
            if acted:
                # As text, so that no caller can modify it.
                self._known[key] = self._known[key]._replace(result=encode(result_as_json(result)))
                if len(self._known) > MOST_KEYS:
                    del self._known[next(known for known, each in self._known.items() if each.result)]
            else:
                del self._known[key]


class _KnownKey(NamedTuple):
    """The call that holds a key, the digest of its arguments, and its result once it has ended."""

    call: str
    digest: str
    result: str | None


def key_digest_of(call: Call) -> str:
    """Identifies an idempotency key of a caller: the same key of another caller or user is another one."""
    context = call.context
    return sha256_of(canonical([context.caller, context.user, context.idempotency_key]))


def check_key(key: object) -> str:
    """Return a valid idempotency key.

    Raises:
        ConfigurationError: The key is not a text of 1 to 255 printable characters.
    """
    if isinstance(key, str) and 0 < len(key) <= LONGEST_KEY and key.isprintable():
        return key
    raise ConfigurationError(
        f"an idempotency key must be a text of 1 to {LONGEST_KEY} printable characters",
        code="bad_idempotency_key",
        hint="use a random UUID for each call, and the same one to repeat it",
    )


def conflict(call: Call) -> Result:
    """The result of a call whose idempotency key was used for another one."""
    message = (
        f"`{call.tool.name}` was not called: its idempotency key was used for another tool or other arguments"
    )
    return without_attempts(Result.failure(Outcome.INVALID_ARGUMENTS, message, code="idempotency_conflict"))


def repeated(result: Result, entry: int | None = None) -> Result:
    """The result of a call that was not made, because an earlier one with its idempotency key has this result."""
    told: dict[str, JSON] = {"repeated": True}
    if entry is not None:
        told["entry"] = entry
    return without_attempts(result.with_meta(idempotency=told))


def has_acted(call: Call, result: Result) -> bool:
    """Whether a repetition of a call could repeat its effect."""
    return result.outcome is Outcome.OK or (may_have_acted(call.tool) and may_have_spent(result))


def result_as_json(result: Result) -> dict[str, JSON]:
    """A result as JSON, without its usage; `result_from_json` is the inverse."""
    failure = result.error
    return {
        "outcome": result.outcome.value,
        "value": result.value,
        "content": [part.as_json() for part in result.content],
        "message": result.message,
        "error": None if failure is None else failure.as_json(),
        "meta": dict(result.meta),
        "raw_value": result.raw_value,
    }


def result_from_json(told: Any) -> Result:
    """The result that `result_as_json` has converted."""
    failure = told["error"]
    return Result(
        Outcome(told["outcome"]),
        told["value"],
        tuple(Content(**part) for part in told["content"]),
        told["message"],
        None if failure is None else Failure(**failure),
        meta=told["meta"] or NOTHING,
        raw_value=told["raw_value"],
    )


def sha256_of(text: str) -> str:
    """The digest of a text, in hexadecimal."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
