"""Inspection of served runtimes: `toolcrib stats`, `top` and `cancel` look into the process of a server of the same user.

A server listens on a Unix socket in a folder that only its user can enter. It sends a line of JSON that describes it, and
answers each line that it receives, such as `{"request": "running"}`, by a line: `{"result": ...}` or `{"error": ...}`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcrib import __version__
from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError, ToolcribError
from toolcrib.core.text import compact, decode_json
from toolcrib.core.user_folders import STATE_VARIABLE, state_folder, why_not_own
from toolcrib.engine.statistics import Statistics

if TYPE_CHECKING:
    from toolcrib.core.model import JSON
    from toolcrib.engine.runtime import Runtime

PROTOCOL: Final = 1
"""Version of the exchange. It changes when an older program could not read the lines of a newer one."""

PATIENCE: Final = 10.0
"""Default of the seconds after which a runtime that does not answer is given up."""

_LONGEST_REQUEST: Final = 1 << 16
_LONGEST_ANSWER: Final = 1 << 28

_SUFFIX: Final = ".sock"

_LONGEST_ADDRESS: Final = 100
"""Bytes of a path that fits in the address of a socket everywhere: 108 on Linux and 104 on macOS, with the final zero."""


class ServedRuntime(NamedTuple):
    """A runtime that a process of the user serves.

    Attributes:
        pid: ID of the process.
        name: Name of the server: by default that of its project, or of its folder.
        folder: Absolute path of its project, or of its working directory.
        transport: How clients reach it, such as `stdio` or `http`.
        started: When it was started.
        version: Its version of toolcrib.
    """

    pid: int
    name: str
    folder: str
    transport: str
    started: datetime
    version: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"

    def as_json(self) -> dict[str, JSON]:
        """Return the description as a JSON object."""
        return {**self._asdict(), "started": self.started.isoformat(timespec="milliseconds")}


class RuntimeUnreachable(ToolcribError):
    """A served runtime has ended, does not answer, or uses another version of the protocol."""


# The server.


@asynccontextmanager
async def inspectable(
    runtime: Runtime, name: str, transport: str, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Let the user inspect a runtime within the block.

    Args:
        runtime: The runtime.
        name: Name of the server; empty for that of its project, or of its folder.
        transport: How clients reach it.
        say: Prints a line for the user if the runtime cannot be inspected. The block runs all the same.
    """
    server = InspectionServer(runtime, _description(runtime, name, transport))
    try:
        await server.start()
    except (OSError, ConfigurationError) as error:
        why = error.message if isinstance(error, ConfigurationError) else error
        say(f"`toolcrib stats` and `toolcrib top` cannot inspect this server: {why}")
    try:
        yield
    finally:
        await server.aclose()


def _description(runtime: Runtime, name: str, transport: str) -> ServedRuntime:
    project = runtime.project
    folder = os.path.abspath("." if project is None else project.root)
    name = name or (os.path.basename(folder) if project is None else project.name)
    return ServedRuntime(os.getpid(), name, folder, transport, RealClock().now(), __version__)


class InspectionServer:
    """Answers requests about a runtime, on a socket of its own."""

    def __init__(self, runtime: Runtime, served: ServedRuntime) -> None:
        self._runtime = runtime
        self._served = served
        self._server: asyncio.Server | None = None
        self._path = ""
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen from now on.

        Raises:
            ConfigurationError: There is no folder for the socket, or other users control it.
            OSError: The folder or the socket cannot be created.
        """
        folder = socket_folder()
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # Checked again, since another user may have created it in the meantime.
        os.chmod(socket_folder(), 0o700)
        for path in _sockets(folder):
            with suppress(RuntimeUnreachable):
                opened = await _connected(path, PATIENCE)
                if opened is not None:
                    opened[1].close()
        # Not named after the process: several containers may share the folder, and each has a process 1.
        path = os.path.join(folder, secrets.token_hex(6))
        # Since Python 3.13, asyncio removes the socket, too, and would look for it at its first address.
        own: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        with _address(path) as address:
            self._server = await asyncio.start_unix_server(
                self._serve, address, limit=_LONGEST_REQUEST, **own
            )
        self._path = path
        os.chmod(path, 0o600)
        # Only now, since a socket with this suffix that refuses a connection is removed.
        os.rename(path, path + _SUFFIX)
        self._path = path + _SUFFIX

    async def aclose(self) -> None:
        """Hang up, and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        client = asyncio.current_task()
        assert client is not None  # noqa: S101 -- a coroutine runs in a task
        self._clients.add(client)
        try:
            if is_other_user(writer):
                return
            await _send(writer, {"protocol": PROTOCOL, **self._served.as_json()})
            while line := await reader.readline():
                await _send(writer, await self._answer(line))
        # The client has hung up, or sent a longer line than any request has.
        except (ConnectionError, ValueError):
            return
        # `aclose` has cancelled it; the streams of asyncio report a cancelled handler as an error.
        except asyncio.CancelledError:
            return
        finally:
            self._clients.discard(client)
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, JSON]:
        try:
            asked: Any = decode_json(line)
            return {"result": await self._result(**asked)}
        except ToolcribError as error:
            return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        except (TypeError, ValueError, RecursionError) as error:
            return {"error": {"code": "invalid_request", "message": f"invalid request: {error}", "hint": ""}}

    async def _result(self, request: str, **asked: Any) -> JSON:
        if request == "running":
            return [call.as_json() for call in self._runtime.running()]
        if request == "statistics":
            # In a thread, since the event loop serves calls: the rows of many tools take a while.
            return await asyncio.to_thread(self._statistics, **asked)
        if request == "cancel":
            return self._runtime.cancel(**asked)
        raise ConfigurationError(
            f"unknown request {request!r}: the runtime has toolcrib {__version__}",
            code="invalid_request",
            hint="inspect it with the same version",
        )

    def _statistics(self, *, reset: bool = False) -> dict[str, JSON]:
        taken = self._runtime.reset_statistics() if reset else self._runtime.statistics
        return taken.as_json()


# The client.


class Inspection:
    """A connection to a served runtime.

    Attributes:
        served: The runtime.
    """

    def __init__(
        self, served: ServedRuntime, reader: StreamReader, writer: StreamWriter, patience: float
    ) -> None:
        self.served = served
        self._reader = reader
        self._writer = writer
        self._patience = patience

    async def statistics(self, *, reset: bool = False) -> Statistics:
        """The calls that have ended; see `Runtime.statistics` and `Runtime.reset_statistics`.

        Raises:
            RuntimeUnreachable: The runtime has ended, or does not answer.
        """
        return Statistics.from_json(await self._ask("statistics", reset=reset))

    async def running(self) -> list[dict[str, Any]]:
        """The running calls, the oldest first, each as `RunningCall.as_json` returns it.

        Raises:
            RuntimeUnreachable: The runtime has ended, or does not answer.
        """
        found: list[dict[str, Any]] = await self._ask("running")
        return found

    async def cancel(self, **selection: str | bool) -> int:
        """Cancel running calls, and return how many; see `Runtime.cancel`.

        Raises:
            RuntimeUnreachable: The runtime has ended, or does not answer.
            ConfigurationError: Nothing selects the calls.
        """
        return int(await self._ask("cancel", **selection))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def _ask(self, request: str, **more: str | bool) -> Any:
        with suppress(ConnectionError):  # the answer is missing then, too
            await _send(self._writer, {"request": request, **more})
        answer = await _received(self._reader, self._patience, str(self.served))
        if "error" in answer:
            error = answer["error"]
            raise ConfigurationError(
                f"{self.served}: {error['message']}", code=error["code"], hint=error["hint"]
            )
        return answer["result"]


@asynccontextmanager
async def inspections(
    patience: float = PATIENCE,
) -> AsyncIterator[tuple[list[Inspection], list[RuntimeUnreachable]]]:
    """Connect to all runtimes that the user serves, within the block. Sockets that processes left behind are removed.

    Args:
        patience: Seconds that a runtime has for each answer.

    Yields:
        The connections, the oldest runtime first, and an error for each runtime that cannot be inspected.

    Raises:
        ConfigurationError: There is no folder for sockets, or other users control it.
    """
    found: list[Inspection] = []
    errors: list[RuntimeUnreachable] = []
    try:
        paths = _sockets(socket_folder())
        connecting = (_inspection(path, patience) for path in paths)
        for each in await asyncio.gather(*connecting, return_exceptions=True):
            if isinstance(each, Inspection):
                found.append(each)
            elif isinstance(each, RuntimeUnreachable):
                errors.append(each)
            elif each is not None:
                raise each
        yield sorted(found, key=lambda each: each.served.started), errors
    finally:
        for each in found:
            each.close()


async def _inspection(path: str, patience: float) -> Inspection | None:
    """Connect to a runtime; None if it has ended."""
    opened = await _connected(path, patience)
    if opened is None:
        return None
    reader, writer = opened
    try:
        return Inspection(await _greeting(path, reader, writer, patience), reader, writer, patience)
    except BaseException:
        writer.close()
        raise


async def _greeting(path: str, reader: StreamReader, writer: StreamWriter, patience: float) -> ServedRuntime:
    """What the server of a socket says of itself."""
    if is_other_user(writer):
        raise RuntimeUnreachable(
            f"{path} is not inspected: another user listens on it", code="runtime_unreachable"
        )
    peer = _peer(writer)
    told = await _received(reader, patience, path if peer is None else f"the runtime of process {peer[0]}")
    if told["protocol"] != PROTOCOL:
        raise RuntimeUnreachable(
            f"{told.get('name')} (pid {told.get('pid')}) has toolcrib {told.get('version')} and is inspected by protocol "
            f"{told['protocol']}; this is toolcrib {__version__} with protocol {PROTOCOL}",
            code="other_version",
            hint="run the `toolcrib` that serves it",
        )
    about = {key: told[key] for key in ServedRuntime._fields}
    return ServedRuntime(**{**about, "started": datetime.fromisoformat(told["started"])})


# Sockets, and the lines on them.


def socket_folder() -> str:
    """The folder of the sockets, which may not exist.

    Raises:
        ConfigurationError: The system has none, or other users control it.
    """
    state = state_folder()
    if state is None or not hasattr(socket, "AF_UNIX"):
        lack = "no Unix sockets" if state is not None else "no folder for the state of programs"
        raise ConfigurationError(f"served runtimes cannot be inspected: this system has {lack}")
    folder = os.path.join(state, "run")
    try:
        why = why_not_own(state) or why_not_own(folder, links=False)
    except OSError as error:
        why = f"it cannot be inspected: {error.strerror}"
    if why:
        raise ConfigurationError(
            f"the sockets of served runtimes in {folder} are not used: {why}",
            hint=f"set {STATE_VARIABLE} to a folder of your own, for the server, too",
        )
    return folder


def _sockets(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(_SUFFIX)]
    except FileNotFoundError:
        return []


@contextmanager
def _address(path: str) -> Iterator[str]:
    """A short form of a path, since the address of a socket has few bytes."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    folder, name = os.path.split(path)
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)


async def _connected(path: str, patience: float) -> tuple[StreamReader, StreamWriter] | None:
    """Connect to a socket; None if its process has ended. A socket that a process left behind is removed.

    Raises:
        RuntimeUnreachable: It cannot be connected to.
    """
    try:
        with _address(path) as address:
            async with asyncio.timeout(patience):
                return await asyncio.open_unix_connection(address, limit=_LONGEST_ANSWER)
    except FileNotFoundError:
        return None
    except ConnectionRefusedError:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return None
    except OSError as error:  # a TimeoutError, too
        raise RuntimeUnreachable(
            f"cannot connect to {path}: {error.strerror or 'no answer'}", code="runtime_unreachable"
        ) from error


async def _send(writer: StreamWriter, document: dict[str, JSON]) -> None:
    writer.write(compact(document).encode() + b"\n")
    await writer.drain()


async def _received(reader: StreamReader, patience: float, sender: str) -> dict[str, Any]:
    """Read a line.

    Raises:
        RuntimeUnreachable: The sender has ended, or does not answer.
    """
    line = b""
    try:
        async with asyncio.timeout(patience):
            line = await reader.readline()
    except TimeoutError:
        raise RuntimeUnreachable(
            f"{sender} does not answer: its event loop is blocked, or its process is stopped",
            code="runtime_unreachable",
        ) from None
    except ConnectionError:
        pass
    if not line.endswith(b"\n"):
        raise RuntimeUnreachable(f"{sender} has ended", code="runtime_ended")
    document: Any = decode_json(line)
    return dict(document)


def is_other_user(writer: StreamWriter) -> bool:
    """Whether the other end of a Unix socket belongs to another user. The permissions decide where the system does not say."""
    peer = _peer(writer)
    return peer is not None and peer[1] != os.geteuid()


def _peer(writer: StreamWriter) -> tuple[int, int] | None:
    """ID of the process at the other end, and of its user (unix(7), SO_PEERCRED); None where the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    form = "3i"
    data = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form)
    )
    pid, user, _group = struct.unpack(form, data)
    return pid, user
