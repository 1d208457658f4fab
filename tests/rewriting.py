"""Rewrites files over and over, in the ways of editors and deployments, and in a process of its own.

No text that is written here means something when it is cut: the name stands last, and in quotes.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from toolcrib import Descriptor

PIECE = 1 << 10
"""Bytes that are written at once."""


def result_of(version: int) -> dict[str, Any]:
    """What the tools of a version answer; how long it is differs from version to version."""
    return {"version": version, "filler": f"{version} " * (1 + version * 197 % 1500), "again": version}


def version_in(value: Any) -> int:
    """The version of an answer; fails if it is not whole."""
    assert value == result_of(value["version"])
    return value["version"]


def version_said(tool: Descriptor) -> int:
    """The version that a descriptor tells, or the file that it names."""
    block = tool.bindings["mock"]
    if "result_file" in block:
        return version_in(json.loads(tool.origin.files.read(block["result_file"])))
    return version_in(block["result"])


def text_of(name: str, version: int) -> bytes:
    """The descriptor of a tool in a version, or of `probe_data` the answer; the end of the name tells the format."""
    if name == "probe_data":
        return json.dumps(result_of(version)).encode()
    mock = {"result": result_of(version)}
    if name.endswith("json"):
        return json.dumps({"mock": mock, "name": name}).encode()
    return f"mock: {json.dumps(mock)}\nname: {json.dumps(name)}\n".encode()


TOOLS = {"probe_yaml": "probe.yaml", "probe_json": "sub/probe.json", "probe_data": "sub/answer.json"}
"""The tools that are rewritten, and where they lie in the folder; of one of them the file with its answer."""


def write_all(folder: Path, version: int) -> None:
    """All of the folder as a version has it; `steady` is the same in all of them."""
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    (folder / "steady.yaml").write_bytes(text_of("steady", 0))
    (folder / "data.yaml").write_bytes(b'mock: {result_file: sub/answer.json}\nname: "probe_data"\n')
    for name, path in TOOLS.items():
        (folder / path).write_bytes(text_of(name, version))


def _in_pieces(path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(data), PIECE):
            file.write(data[start : start + PIECE])


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _replaced(path: Path, data: bytes) -> None:
    _in_pieces(_beside(path), data)
    _beside(path).replace(path)


def _backed_up(path: Path, data: bytes) -> None:
    backup = path.with_name(f"{path.name}~")
    path.rename(backup)
    _in_pieces(path, data)
    backup.unlink()


def _deleted(path: Path, data: bytes) -> None:
    path.unlink()
    _in_pieces(path, data)


def _touched(path: Path, data: bytes) -> None:
    _replaced(path, data)
    for seconds in (0, 10**9, 4 * 10**9):
        os.utime(path, (seconds, seconds))
    path.touch()


def _moved(path: Path, data: bytes) -> None:
    """The file has another name in every second version, unless somebody names it."""
    if path.name == "answer.json":
        _replaced(path, data)
        return
    other = path.with_name(f"a-{path.name}")
    here, there = (path, other) if path.exists() else (other, path)
    _in_pieces(_beside(path), data)
    _beside(path).replace(here)
    here.rename(there)


def _made_a_folder(path: Path, data: bytes) -> None:
    path.unlink()
    path.mkdir()
    (path / "inner").mkdir()
    shutil.rmtree(path)
    _replaced(path, data)


def _target(path: Path, data: bytes) -> str:
    """A new file that a link may lead to, where nobody looks for documents; one is kept besides."""
    folder = path.with_name(f".{path.name}.targets")
    folder.mkdir(exist_ok=True)
    old = sorted(int(entry.stem) for entry in folder.iterdir())
    number = old[-1] + 1 if old else 0
    _in_pieces(folder / f"{number}{path.suffix}", data)
    for each in old[:-1]:
        (folder / f"{each}{path.suffix}").unlink()
    return f"{folder.name}/{number}{path.suffix}"


def _linked(path: Path, data: bytes) -> None:
    _beside(path).symlink_to(_target(path, data))
    _beside(path).replace(path)


def _linked_anew(path: Path, data: bytes) -> None:
    target = _target(path, data)
    path.unlink()
    path.symlink_to(target)


def _denied(path: Path, data: bytes) -> None:
    path.chmod(0)
    _replaced(path, data)
    path.chmod(0)
    path.chmod(0o644)


def _each(way: Callable[[Path, bytes], None]) -> Callable[[Path, int], None]:
    def write(folder: Path, version: int) -> None:
        for name, path in TOOLS.items():
            way(folder / path, text_of(name, version))

    return write


def _folder_moved(folder: Path, version: int) -> None:
    away = folder.with_name("away")
    folder.rename(away)
    write_all(away, version)
    away.rename(folder)


def _folder_made_anew(folder: Path, version: int) -> None:
    shutil.rmtree(folder)
    write_all(folder, version)


def _folder_denied(folder: Path, version: int) -> None:
    folder.chmod(0)
    for name, path in TOOLS.items():
        _replaced(folder / path, text_of(name, version))
    folder.chmod(0o755)


def _released(folder: Path, version: int) -> None:
    """The folder is a link to a release, and another release takes its place."""
    release, link = folder.with_name(f"release-{version}"), folder.with_name("next")
    write_all(release, version)
    link.symlink_to(release)
    before = folder.resolve()
    link.replace(folder)
    shutil.rmtree(before)


class Way(NamedTuple):
    """How files are rewritten.

    Attributes:
        write: Makes a version of the folder.
        absent: Files are really gone for a moment, or may be: a listing can miss one that is renamed meanwhile.
        whole: So is the whole folder.
        linked: The folder is to be a link.
    """

    write: Callable[[Path, int], None]
    absent: bool = False
    whole: bool = False
    linked: bool = False


WAYS = {
    "truncated and written in pieces": Way(_each(_in_pieces)),
    "written beside and put in place": Way(_each(_replaced)),
    "renamed away and written anew": Way(_each(_backed_up), absent=True),
    "deleted and created": Way(_each(_deleted), absent=True),
    "touched, also with the clock set back": Way(_each(_touched)),
    "moved to another name": Way(_each(_moved), absent=True),
    "replaced by a folder and back": Way(_each(_made_a_folder), absent=True),
    "a link that leads elsewhere": Way(_each(_linked)),
    "a link that is made anew": Way(_each(_linked_anew), absent=True),
    "the whole folder moved away and back": Way(_folder_moved, absent=True, whole=True),
    "the whole folder made anew": Way(_folder_made_anew, absent=True, whole=True),
    "released by a link to the folder": Way(_released, linked=True),
}

WAYS_OF_DENIAL = {
    "permission for files": Way(_each(_denied)),
    "permission for the folder": Way(_folder_denied),
}

ARCHIVE = "pack.zip"


def pack_of(version: int) -> dict[str, bytes]:
    """The files of a pack; all of them tell the version."""
    return {
        "pack.yaml": f'version: {version}.0.0\nname: "p"\n'.encode(),
        "tools/probe.yaml": text_of("probe", version),
        "tools/from_file.yaml": b'mock: {result_file: ../data.json}\nname: "from_file"\n',
        "data.json": json.dumps(result_of(version)).encode(),
    }


def write_pack(folder: Path, version: int) -> Path:
    """The pack as a folder."""
    for name, content in pack_of(version).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def archive_of(version: int) -> bytes:
    """The pack as an archive. Some versions are stored and some compressed, so their lengths differ much."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if version % 3 else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in pack_of(version).items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()


def _of_archive(way: Callable[[Path, bytes], None]) -> Callable[[Path, int], None]:
    return lambda folder, version: way(folder / ARCHIVE, archive_of(version))


def _written_over(path: Path, data: bytes) -> None:
    """The old bytes stay until new ones come over them; an archive tells by its sums that both are mixed."""
    with path.open("r+b", buffering=0) as file:
        for start in range(0, len(data), PIECE):
            file.write(data[start : start + PIECE])
        file.truncate()


def _unpacked_and_packed(folder: Path, version: int) -> None:
    """In every second version the pack is a folder, of the name that the archive has."""
    path, new, old = folder / ARCHIVE, folder / ".new", folder / ".old"
    if version % 2:
        write_pack(new, version)
    else:
        new.write_bytes(archive_of(version))
    path.rename(old)
    new.rename(path)
    if version % 2:
        old.unlink()
    else:
        shutil.rmtree(old)


WAYS_OF_ARCHIVES = {
    "truncated and written in pieces": Way(_of_archive(_in_pieces)),
    "written over in pieces": Way(_of_archive(_written_over)),
    "written beside and put in place": Way(_of_archive(_replaced)),
    "renamed away and written anew": Way(_of_archive(_backed_up), absent=True),
    "deleted and created": Way(_of_archive(_deleted), absent=True),
    "a link that leads elsewhere": Way(_of_archive(_linked)),
    "a folder in its place and back": Way(_unpacked_and_packed, absent=True),
}


def settings_of(version: int) -> dict[str, bytes]:
    """A project that disables all tools but that of the version, and a pack with a namespace of the version."""
    number = version % 3
    disabled = ", ".join(f"only_{each}" for each in range(3) if each != number)
    return {
        "toolcrib.yaml": f'sources: [tools]\ndisable: [{disabled}]\nproject: "p{version}"\n'.encode(),
        "tools/pack/pack.yaml": f'version: {version}.0.0\nnamespace: v{version}\nname: "pack"\n'.encode(),
    }


def write_settings(folder: Path, version: int) -> None:
    """The project, with three tools, and a pack with one."""
    (folder / "tools" / "pack").mkdir(parents=True)
    for number in range(3):
        (folder / "tools" / f"{number}.yaml").write_bytes(text_of(f"only_{number}", 0))
    (folder / "tools" / "pack" / "packed.yaml").write_bytes(text_of("packed", 0))
    for name, data in settings_of(version).items():
        (folder / name).write_bytes(data)


def _of_settings(way: Callable[[Path, bytes], None]) -> Callable[[Path, int], None]:
    def write(folder: Path, version: int) -> None:
        for name, data in settings_of(version).items():
            way(folder / name, data)

    return write


WAYS_OF_SETTINGS = {
    "truncated and written in pieces": Way(_of_settings(_in_pieces)),
    "written beside and put in place": Way(_of_settings(_replaced)),
    "a link that leads elsewhere": Way(_of_settings(_linked)),
    "permission": Way(_of_settings(_denied)),
}

ALL_WAYS = {**WAYS, **WAYS_OF_DENIAL, **{f"settings: {name}": way for name, way in WAYS_OF_SETTINGS.items()}}
ALL_WAYS |= {f"archive: {name}": way for name, way in WAYS_OF_ARCHIVES.items()}


def lay_out(base: Path, way: str) -> Path:
    """The folder in version 0."""
    folder = base / "tools"
    if ALL_WAYS[way].linked:
        (base / "release-0").mkdir()
        folder.symlink_to(base / "release-0")
    write_all(folder, 0)
    return folder


def rewrite(way: str, folder: Path) -> None:
    """Write as many versions as each line of standard input says, and tell when they are written."""
    version = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            version += 1
            ALL_WAYS[way].write(folder, version)
        print(version, flush=True)  # noqa: T201 -- tells its parent


@contextmanager
def without_privileges() -> Iterator[None]:
    """Permissions hold for root as well, in this thread and in those that it starts; not in other processes.

    CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH are put aside: see capabilities(7).
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] &= ~0b110
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = effective
        assert libc.capset(header, sets) == 0


class Writer:
    """A process that rewrites a folder."""

    def __init__(self, way: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, way, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def go_on(self, versions: int) -> None:
        """Let it write more of them, while whoever calls this goes on as well."""
        self._process.stdin.write(f"{versions}\n")
        self._process.stdin.flush()

    def written(self) -> int:
        """Waits until it has written what it was told; the last version."""
        return int(self._process.stdout.readline())


if __name__ == "__main__":
    rewrite(sys.argv[1], Path(sys.argv[2]))
