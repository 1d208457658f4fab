"""The texts of a server: look-ups, addresses, headers, names of variables. Values are never shown, for they may be secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from toolcrib.core.errors import Problem, Severity
from toolcrib.http.headers import fault_of_name, header_fault
from toolcrib.http.messages import parse_origin
from toolcrib.loading.documents.positions import clipped
from toolcrib.security.redaction import is_secret_name
from toolcrib.security.secrets import SecretVariable, check_variables, pieces_of


class _Spot(Protocol):
    def problem(self, code: str, message: str, hint: str = "", severity: Severity = "error") -> Problem: ...


class _Where(Protocol):
    def __call__(self, key: str = "", *steps: str | int) -> _Spot: ...


_OF_THE_PROTOCOL: Final = frozenset(
    {
        "accept",
        "content-type",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
    }
)
"""Written by the transport (MCP, "Streamable HTTP"), besides those that belong to any connection."""

_COOKIES: Final = "write `auth: {type: apiKey, in: cookie, name: ..., value: ...}`"


def check_texts(said: Mapping[str, Any], where: _Where) -> Iterator[Problem]:
    """What is wrong with the texts that go to a process."""
    for key in ("command", "cwd"):
        if key in said:
            yield from _check_text(said[key], where(key))
    for index, text in enumerate(said.get("args", ())):
        yield from _check_text(text, where("args", index))
    for name, text in said.get("env", {}).items():
        spot = where("env", name)
        if not name or "=" in name or "\0" in name:
            message = f"`{clipped(name)}` is no name of an environment variable"
            yield spot.problem("wrong_form", message, "a name is not empty and holds no `=`")
        yield from _check_text(text, spot)
        yield from _check_literal(name, text, spot)
    if "command" in said and not said.get("args"):
        yield from _check_program(said["command"], where("command"))


def _check_text(text: str, spot: _Spot) -> Iterator[Problem]:
    for problem in check_variables(text, ""):
        yield spot.problem(problem.code, problem.message, problem.hint)
    if "\0" in text:
        yield spot.problem("wrong_form", "the text holds a NUL, which no process can be given")


def _check_program(command: str, spot: _Spot) -> Iterator[Problem]:
    """A whole command line in place of the program is a common slip, and no program is called so."""
    first, _, rest = command.strip().partition(" ")
    if rest and not re.search(r"[/\\]|\$\{", first):
        message = f"`{clipped(command)}` is a command line; `command` is the program alone"
        yield spot.problem(
            "wrong_form",
            message,
            f"write `command: {clipped(first)}`, and the rest in `args`, one text for each argument",
        )


def check_headers(headers: Mapping[str, str], where: _Where) -> Iterator[Problem]:
    """What is wrong with the headers of a server."""
    known: dict[str, str] = {}
    for name, text in headers.items():
        spot = where("headers", name)
        other = known.setdefault(name.lower(), name)
        fault = fault_of_name(name)
        if fault is not None:
            hint = _COOKIES if name.lower() == "cookie" else fault.hint
            yield spot.problem(fault.code, fault.message, hint)
        elif name.lower() in _OF_THE_PROTOCOL or name.lower().startswith("mcp-param-"):
            message = f"the header `{name}` is MCP's own, and can't be written here"
            yield spot.problem("reserved_header", message, "leave it out")
        elif other != name:
            message = f"the header `{name}` is written twice, once as `{other}`"
            yield spot.problem("duplicate_header", message, "leave out one of them")
        unsendable = header_fault(text)
        if unsendable:
            yield spot.problem("unusable_credential", f"the header `{clipped(name)}` {unsendable}")
        for problem in check_variables(text, ""):
            yield spot.problem(problem.code, problem.message, problem.hint)
        yield from _check_literal(name, text, spot)


def _check_literal(name: str, text: str, spot: _Spot) -> Iterator[Problem]:
    if text and is_secret_name(name) and "${" not in text:
        message = (
            f"the secret `{clipped(name)}` is written in the document, where everybody who reads it knows it"
        )
        variable = re.sub(r"\W", "_", name, flags=re.ASCII).upper()
        yield spot.problem(
            "literal_secret",
            message,
            f"put it into the environment and write `${{{variable}}}`",
            "warning",
        )


def check_url(url: str, spot: _Spot) -> Iterator[Problem]:
    """What is wrong with the address of a server; what is looked up is not known yet."""
    faults = check_variables(url, "")
    for problem in faults:
        yield spot.problem(problem.code, problem.message, problem.hint)
    fault = None if faults else _fault_of_url(url)
    if fault is not None:
        message, hint = fault
        yield spot.problem("invalid_url", message, hint)


_ADDRESS: Final = "write `https://host/mcp`"
_LOOKED_UP: Final = "x"


def _fault_of_url(url: str) -> tuple[str, str] | None:
    pieces = pieces_of(url)
    known = "".join(_LOOKED_UP if isinstance(piece, SecretVariable) else piece for piece in pieces)
    if "{{" in known:
        return (
            "the url holds an expression `{{`, and nothing is computed here",
            "write the url, or `${VAR}` in it",
        )
    if re.search(r"[\x00-\x20\x7f]", known):
        return "the url holds a blank or control character", "write a blank as `%20`"
    if isinstance(pieces[0], SecretVariable):
        return None
    scheme, _, rest = known.partition("://")
    if scheme.lower() not in {"http", "https"} or not rest:
        seen = f", and this one begins with `{clipped(scheme)}:`" if "://" in known else ""
        return f"the url of a server begins with `https://` or `http://`{seen}", _ADDRESS
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    if "@" in authority:
        return "the url holds credentials", "put them into `auth` or `headers`"
    if "#" in rest:
        return "the url has a fragment (`#`), which is never sent", "leave it out"
    try:
        parse_origin(f"{scheme}://{_with_a_port(authority)}")
    except ValueError:
        return f"`{clipped(authority)}` is no host with perhaps a port", _ADDRESS
    return None


def _with_a_port(authority: str) -> str:
    """The host and port, with a number for a port that is looked up."""
    return re.sub(rf":[0-9]*{_LOOKED_UP}[0-9]*$", ":80", authority)
