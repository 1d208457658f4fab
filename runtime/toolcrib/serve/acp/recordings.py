"""Recordings of ACP connections, as JSON Lines: one line for each message of both sides.

    {"acp_recording": 1, "toolcrib": "0.1.0", "by": "agent", "name": "my-agent --acp", "at": "2030-01-01T00:00:00Z"}
    {"t": 0.012, "from": "client", "line": 1, "message": {"jsonrpc": "2.0", "id": 0, "method": "initialize", ...}}
    {"t": 0.019, "from": "agent", "line": 1, "invalid": "it is not JSON", "text": "Debug: started"}
    {"t": 7.201, "ended": "the agent exited with status 1"}

Secrets are `***` in the file. They are found by their names, and values of environment variables and headers are all masked.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from toolcrib import __version__
from toolcrib.core.clock import RealClock, format_time
from toolcrib.core.errors import ConfigurationError, Problem
from toolcrib.core.model import JSON
from toolcrib.core.protocols import Clock
from toolcrib.core.text import compact, decode_json, format_size
from toolcrib.schema.validation.violations import shorten
from toolcrib.serve.acp.connection_timeline import ConnectionTimeline, SessionEvent, Side, masked_message

VERSION: Final = 1
"""Version of the format."""

LONGEST_LINE: Final = 256 << 20
"""Maximum length of a line in bytes: twice that of a message, whose characters may be escaped in the file."""

_SHOWN: Final = 200
"""Characters of an invalid line that are recorded."""

_SIDES: Final[tuple[Side, Side]] = ("client", "agent")

_CODE: Final = "invalid_recording"

_log = logging.getLogger("toolcrib")


class RecordingHeader(NamedTuple):
    """The first line of a recording.

    Attributes:
        by: The side that has recorded it.
        name: Name or command of the other side; empty if unknown.
        at: When it began.
        toolcrib: Version of toolcrib.
    """

    by: str = ""
    name: str = ""
    at: str = ""
    toolcrib: str = ""


class RecordedMessage(NamedTuple):
    """A further line of a recording.

    Attributes:
        at: Seconds since the start of the connection.
        sender: The sender of the message; empty for the end of the connection.
        line: Number of the line among those of its sender.
        message: The message, if the line is one.
        invalid: Why the line is not a message; empty if it is one.
        text: The beginning of an invalid line.
        ended: Why the connection has ended; empty if it has not.
        place: Number of the line in the recording.
    """

    at: float
    sender: Side | str = ""
    line: int = 0
    message: JSON = None
    invalid: str = ""
    text: str = ""
    ended: str = ""
    place: int = 0


class Recorder:
    """Writes a recording.

    A file that cannot be written to any more ends the recording and never the connection; a warning is logged.

    Args:
        path: The file, which is replaced. Only the user can read it.
        by: The side that records.
        name: Name or command of the other side.
        clock: Clock.

    Raises:
        ConfigurationError: The file cannot be created.
    """

    def __init__(self, path: Path, *, by: Side, name: str = "", clock: Clock | None = None) -> None:
        self._path = path
        self._clock = RealClock() if clock is None else clock
        self._start = self._clock.monotonic()
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"cannot record to `{path}`: {error.strerror}",
                hint="use `--record` with a file in a folder that exists",
            ) from None
        self._file: BinaryIO | None = os.fdopen(number, "wb", 0)
        self._write(
            {
                "acp_recording": VERSION,
                "toolcrib": __version__,
                "by": by,
                "name": name,
                "at": format_time(self._clock.now()),
            }
        )

    def message(self, sender: Side, line: int, message: JSON) -> None:
        """Record a message, whose secrets are masked."""
        self._add({"from": sender, "line": line, "message": message})

    def invalid_line(self, sender: Side, line: int, why: str, text: str) -> None:
        """Record a line that is not a message."""
        self._add({"from": sender, "line": line, "invalid": why, "text": text[:_SHOWN]})

    def ended(self, why: str) -> None:
        """Record the end of the connection; another one may follow."""
        self._add({"ended": why or "the connection was closed"})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _add(self, said: dict[str, JSON]) -> None:
        self._write({"t": round(self._clock.monotonic() - self._start, 6), **said})

    def _write(self, said: dict[str, JSON]) -> None:
        if self._file is None:
            return
        try:
            data = compact(said).encode()
        except ValueError:  # a lone surrogate has no UTF-8 form and must be escaped
            data = json.dumps(said).encode()
        try:
            # One write for each line, so that a crash truncates at most the last one.
            view = memoryview(data + b"\n")
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            _log.warning("the recording `%s` ends here: %s", self._path, error.strerror)
            self.close()


class Recording:
    """Reads a recording, line by line.

    Args:
        path: The file.

    Attributes:
        header: Its first line.
        problems: The lines that cannot be read, as far as the file has been read.

    Raises:
        ConfigurationError: The file cannot be read, or is not a recording.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problems: list[Problem] = []
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the recording `{path}`: {error.strerror}", code="unreadable_file"
            ) from None
        try:
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def _read_header(self) -> RecordingHeader:
        try:
            first = self._file.readline(1 << 20)
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the recording `{self._path}`: {error.strerror}", code="unreadable_file"
            ) from None
        try:
            value = decode_json(first)
        except (ValueError, RecursionError):
            value = None
        version = value.get("acp_recording") if isinstance(value, dict) else None
        if not isinstance(value, dict) or type(version) is not int:
            shown = (
                "it is empty"
                if not first
                else f"got `{shorten(first[:_SHOWN].decode(errors='replace').strip())}`"
            )
            raise ConfigurationError(
                f"`{self._path}` is not a recording of ACP: line 1: expected an object with `acp_recording`, {shown}",
                code=_CODE,
                hint="record one with `toolcrib serve acp --record FILE` or `toolcrib agent run --record FILE`",
            )
        if version != VERSION:
            raise ConfigurationError(
                f"`{self._path}` is a recording of format {version}; this version of toolcrib reads {VERSION}",
                code=_CODE,
                hint="read it with the version of toolcrib that has written it, or a newer one",
            )
        return RecordingHeader(*(str(value.get(name, "")) for name in RecordingHeader._fields))

    def __iter__(self) -> Iterator[RecordedMessage]:
        """Yield the further lines. Lines that cannot be read are skipped and become problems."""
        with self._file:
            for place, line, ends in self._lines():
                if line is None:
                    self._problem(place, f"the line is longer than {format_size(LONGEST_LINE)}", "error")
                elif line.strip():
                    found = self._parsed(place, line, whole=ends)
                    if found is not None:
                        yield found

    def _lines(self) -> Iterator[tuple[int, bytes | None, bool]]:
        """The number, the text and whether it has an end, of each line; the text is None if it is too long."""
        place = 1
        while line := self._file.readline(LONGEST_LINE + 1):
            place += 1
            if len(line) <= LONGEST_LINE:
                yield place, line, line.endswith(b"\n")
                continue
            while line and not line.endswith(b"\n"):
                line = self._file.readline(1 << 20)
            yield place, None, True

    def _parsed(self, place: int, line: bytes, *, whole: bool) -> RecordedMessage | None:
        try:
            value = decode_json(line)
        except (ValueError, RecursionError):
            if whole:
                self._problem(place, "the line is not valid JSON", "error")
            else:
                self._problem(place, "the last line was not written completely", "warning")
            return None
        why = _why_no_record(value)
        if why or not isinstance(value, dict):
            self._problem(place, why, "error")
            return None
        members: Any = value
        if "ended" in members:
            return RecordedMessage(members["t"], ended=members["ended"], place=place)
        return RecordedMessage(
            members["t"],
            members["from"],
            members["line"],
            members.get("message"),
            members.get("invalid", ""),
            members.get("text", ""),
            place=place,
        )

    def _problem(self, place: int, message: str, severity: Any) -> None:
        self.problems.append(
            Problem(code=_CODE, message=message, severity=severity, source=str(self._path), line=place)
        )


_FORMS: Final = {"line": int, "invalid": str, "text": str, "ended": str}


def _why_no_record(value: JSON) -> str:
    """What is wrong with a further line of a recording; empty if nothing is."""
    if not isinstance(value, dict):
        return f"expected an object, got `{type(value).__name__}`"
    if not isinstance(value.get("t"), int | float) or isinstance(value.get("t"), bool):
        return "`t`: expected a number of seconds"
    for name, form in _FORMS.items():
        if name in value and type(value[name]) is not form:
            return f"`{name}`: expected `{form.__name__}`, got `{type(value[name]).__name__}`"
    if "ended" in value:
        return ""
    if value.get("from") not in _SIDES:
        return "`from`: expected `client` or `agent`"
    if "line" not in value:
        return "`line` is missing"
    if ("message" in value) is ("invalid" in value):
        return "expected either `message` or `invalid`"
    return ""


def replayed(records: Iterable[RecordedMessage]) -> Iterator[SessionEvent]:
    """The events of a recording: those that the connection had while it was recorded.

    Args:
        records: The recording.
    """
    timeline = ConnectionTimeline()
    for record in records:
        yield from replay_record(record, timeline)
        if record.ended:
            # An agent that is started again has another connection.
            timeline = ConnectionTimeline()
    # Whoever recorded was killed, if the end is not in the file.
    yield from timeline.ended()


def replay_record(record: RecordedMessage, timeline: ConnectionTimeline) -> list[SessionEvent]:
    """The events of one line of a recording."""
    if record.ended:
        return timeline.ended()
    side: Side = "client" if record.sender == "client" else "agent"
    if record.invalid:
        return timeline.invalid_line(side, record.line, record.invalid)
    return timeline.message(side, masked_message(record.message), at=record.at, line=record.line)
