"""The state of a session's mocks between two processes: what it consists of, and the file that holds it.

The file is JSON and contains only what calls have changed, so rows that no call wrote still come from the documents.
A process holds a lock on the file while it makes its calls, and replaces the file atomically.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from toolcrib.core.clock import format_time
from toolcrib.core.errors import ToolcribError
from toolcrib.core.model import JSON
from toolcrib.core.text import decode_json, json_equal
from toolcrib.engine.idempotency_keys import encode, result_as_json, result_from_json
from toolcrib.engine.session import Session
from toolcrib.executors.mock.variables import MockState, state_key
from toolcrib.expressions.values import frozen, thawed
from toolcrib.schema.validation import Validator
from toolcrib.simulation.store import CallCounter, SavedRows, call_counter_of, counter_key, store_of

FORMAT: Final = 1
"""Version of the file. A newer one is refused."""

_LARGEST: Final = 256 << 20
"""Maximum size of a file, in bytes."""

_POLL: Final = 0.02

_COUNT: Final = {"type": "integer", "minimum": 0}

_RESULT: Final = {
    "type": "object",
    "required": ["outcome", "value", "content", "message", "error", "meta", "raw_value"],
    "properties": {
        "outcome": {"type": "string"},
        "content": {"type": "array", "items": {"type": "object"}},
        "message": {"type": "string"},
        "error": {"type": ["object", "null"]},
        "meta": {"type": "object"},
    },
}

_SCHEMA: Final[Any] = {
    "type": "object",
    "required": ["format"],
    "additionalProperties": False,
    "properties": {
        "format": {"const": FORMAT},
        "calls": _COUNT,
        "rows": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["written", "deleted"],
                "additionalProperties": False,
                "properties": {
                    "written": {"type": "object"},
                    "deleted": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
        "states": {"type": "object", "additionalProperties": {"type": "string"}},
        "sequences": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tools": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["calls", "numbered", "replies", "answers"],
                "additionalProperties": False,
                "properties": {
                    "calls": _COUNT,
                    "numbered": _COUNT,
                    "replies": {"type": "object", "additionalProperties": {"type": "integer"}},
                    "answers": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["by", "result"],
                            "additionalProperties": False,
                            "properties": {"by": {}, "result": _RESULT},
                        },
                    },
                },
            },
        },
    },
}


class UnusableState(ToolcribError):
    """A state file is corrupt, newer than this program, in use, or cannot be read or written. It is left as it is."""

    code = "state_unusable"


def saved_state(session: Session) -> dict[str, JSON]:
    """What the mocks of a session have changed and counted, as JSON; `restore_state` is the inverse.

    Returns:
        `{format, calls, rows, states, sequences, tools}`: the number of calls, the written and deleted rows of each
        collection, the states of machines, the numbers of sequences, and for each tool its calls, the uses of its replies
        and the results by `idempotent_by`. Limits, budgets and caches are not part of it.
    """
    store = store_of(session)
    tools: dict[str, JSON] = {}
    slots = session._slots  # noqa: SLF001 -- the same package
    for key, state in slots.items():
        if not isinstance(state, MockState):
            continue
        name = key.removeprefix(state_key(""))
        counter = slots.get(counter_key(name))
        answers: list[JSON] = [
            {"by": thawed(by), "result": result_as_json(kept)} for by, kept in state.answers.items()
        ]
        tools[name] = {
            "calls": state.calls,
            "numbered": counter.calls if isinstance(counter, CallCounter) else 0,
            "replies": dict(state.used),
            "answers": answers,
        }
    return {
        "format": FORMAT,
        "calls": session.calls,
        "rows": {
            known: {"written": dict(rows.written), "deleted": list(rows.deleted)}
            for known, rows in store.saved_rows().items()
        },
        "states": dict(store.version.states),
        "sequences": dict(store.version.numbers),
        "tools": tools,
    }


def unsaved_effects(session: Session) -> str:
    """A warning about the delayed effects (`after`) of a session, which a saved state does not contain; empty if there are none."""
    pending = store_of(session).pending
    if not pending:
        return ""
    first = pending[0]
    which = f"a delayed effect of `{first.tool.name}` ({first.place}), due at {format_time(first.due)}"
    more = f" and {len(pending) - 1:,} more" if len(pending) > 1 else ""
    return f"warning: the state file does not contain {which}{more}: it will never be applied"


def restore_state(session: Session, state: Any) -> None:
    """Continue in a new session from a state that `saved_state` returned and `StateFile` has checked."""
    session.calls = state.get("calls", 0)
    store = store_of(session)
    store.saved = {
        known: SavedRows(rows["written"], tuple(rows["deleted"]))
        for known, rows in state.get("rows", {}).items()
    }
    store.version = store.version._replace(states=state.get("states", {}), numbers=state.get("sequences", {}))
    for name, told in state.get("tools", {}).items():
        mock = session.slot(state_key(name), MockState)
        mock.calls = told["calls"]
        mock.used.update(told["replies"])
        mock.answers.update(
            (frozen(each["by"]), result_from_json(each["result"])) for each in told["answers"]
        )
        if told["numbered"]:
            call_counter_of(session, name).calls = told["numbered"]


class StateFile:
    """A state file that is open.

    Attributes:
        state: Its state; `{"format": 1}` if the file is new.
    """

    def __init__(self, path: str, handle: int, state: dict[str, JSON], *, new: bool) -> None:
        self.state = state
        self._path = path
        self._handle = handle
        self._new = new

    def write(self, state: dict[str, JSON]) -> None:
        """Replace the state atomically, if it has changed.

        Raises:
            UnusableState: The file cannot be written.
        """
        if not self._new and json_equal(state, self.state):
            return
        draft = f"{self._path}.{os.getpid()}.part"
        try:
            mode = stat.S_IMODE(os.fstat(self._handle).st_mode)
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            try:
                with open(file, "w", encoding="utf-8") as stream:
                    stream.write(encode(state) + "\n")
                os.replace(draft, self._path)
            except BaseException:
                os.unlink(draft)
                raise
        except OSError as error:
            raise _unusable(self._path, f"cannot be written: {error.strerror}") from error
        self.state, self._new = state, False


@contextmanager
def open_state(path: str, *, patience: float, writes: bool = True) -> Iterator[StateFile]:
    """Open a state file and keep other processes from using it within the block. A missing or empty file is a new state.

    Args:
        path: Path of the file. A link is followed.
        patience: Seconds to wait for a process that uses the file.
        writes: Whether the state will be written. If not, the file is neither created nor locked.

    Raises:
        UnusableState: The file is corrupt, newer than this program, in use, or cannot be read or written.
    """
    path = os.path.realpath(path)
    try:
        handle = _locked(path, patience) if writes else _opened(path, os.O_RDONLY)
    except FileNotFoundError as error:
        if not writes:
            yield StateFile(path, -1, {"format": FORMAT}, new=True)
            return
        raise _unusable(path, "cannot be created: its folder does not exist") from error
    except OSError as error:
        raise _unusable(path, f"cannot be opened: {error.strerror}") from error
    try:
        content = _content(path, handle)
        new = not content.strip()
        yield StateFile(path, handle, {"format": FORMAT} if new else _parsed(path, content), new=new)
    finally:
        os.close(handle)  # and with it the lock


def _opened(path: str, flags: int) -> int:
    # Without O_NONBLOCK, a FIFO would wait for its writer.
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return handle


def _locked(path: str, patience: float) -> int:
    """Open the file that is at a path once no other process uses it."""
    try:
        import fcntl  # noqa: PLC0415 -- not on Windows
    except ImportError as error:
        raise UnusableState(
            "state files need file locks, which this system does not have",
            hint="use `toolcrib shell`, which keeps the store as long as it runs",
        ) from error

    folder = os.path.dirname(path)
    if os.path.isdir(folder) and not os.access(folder, os.W_OK):
        raise _unusable(path, "cannot be written: its folder is not writable")
    deadline = time.monotonic() + patience
    while True:
        handle = _opened(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A process that held the lock has replaced the file: the lock is on its old content.
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(handle)
                raise UnusableState(
                    f"{path} is in use by another process",
                    hint="wait until it has ended, or use another file",
                ) from None
            time.sleep(_POLL)  # noqa: TID251 -- another process decides how long, not a clock of ours
        except FileNotFoundError:
            pass  # It was deleted in the meantime.
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _content(path: str, handle: int) -> bytes:
    try:
        with open(handle, "rb", closefd=False) as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise _unusable(path, f"exceeds {_LARGEST >> 20} MiB")
    return content


def _parsed(path: str, content: bytes) -> dict[str, JSON]:
    try:
        state: Any = decode_json(content)
    except (ValueError, RecursionError) as error:
        raise _corrupt(
            path, "nested too deeply" if isinstance(error, RecursionError) else str(error)
        ) from error
    written = state.get("format") if isinstance(state, dict) else None
    if isinstance(written, int) and written > FORMAT:
        raise UnusableState(
            f"{path} was written by a newer toolcrib: its format is {written}, and this version reads {FORMAT}",
            hint="upgrade toolcrib, or use another file",
        )
    faults = Validator(_SCHEMA).faults(state)
    if faults:
        raise _corrupt(path, faults[0].for_model())
    try:
        for tool in state.get("tools", {}).values():
            for each in tool["answers"]:
                result_from_json(each["result"])
    except (TypeError, ValueError) as error:
        raise _corrupt(path, f"a stored result is invalid: {error}") from error
    checked: dict[str, Any] = state
    return checked


def _corrupt(path: str, why: str) -> UnusableState:
    hint = "restore the file, delete it to start from the store of the documents, or use another file"
    return UnusableState(f"{path} is not a valid state file: {why}", hint=hint)


def _unusable(path: str, why: str) -> UnusableState:
    return UnusableState(f"{path} {why}")
