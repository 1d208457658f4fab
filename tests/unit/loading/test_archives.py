"""Packs in zip archives: what Python's zipfile writes reads back equal, and nothing else is believed."""

from __future__ import annotations

import io
import random
import stat
import struct
import time
import tracemalloc
import zipfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples, sample
from toolcrib.loading.documents.archives import (
    _END_MARK,
    ARCHIVE_BYTES,
    CONTENT_BYTES,
    ENTRIES,
    FILE_BYTES,
    MOST,
    NAME_DEPTH,
    ArchiveFaults,
    document_names,
    open_archive,
    parse_archive,
    read_zip,
)

PACK = b"name: travel\nversion: 1.0.0\n"
TOOL = b"name: get_weather\nmock: {result: {sky: clear}}\n"
PLAIN = {"pack.yaml": PACK, "tools/get.tool.yaml": TOOL}


def zipped(files=PLAIN, method=zipfile.ZIP_DEFLATED, comment=b"", stream=None):
    """The bytes of an archive; names may be ZipInfo."""
    buffer = io.BytesIO() if stream is None else stream
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.comment = comment
        for name, content in files.items() if isinstance(files, dict) else files:
            archive.writestr(name, content)
    return buffer.getvalue()


def info(name, *, mode=None, system=3, attributes=0, time=(2026, 1, 1, 0, 0, 0)):
    entry = zipfile.ZipInfo(name, time)
    entry.create_system = system
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = attributes | ((mode or 0) << 16)
    return entry


def codes(data):
    archive, problems = parse_archive("packs/travel.zip", data)
    assert (archive is None) is bool(problems)
    assert all(problem.source == "packs/travel.zip" for problem in problems)
    return [problem.code for problem in problems]


def plain_read(data):
    """Every file, without asking for a pack; None if it is refused."""
    faults = ArchiveFaults("x.zip")
    contents = read_zip(data, faults)
    return None if faults.found else contents


def test_a_pack_at_the_top_of_an_archive():
    archive, problems = parse_archive("packs/travel.zip", zipped())
    assert problems == []
    assert dict(archive.contents) == PLAIN
    assert archive.top == ""
    assert archive.place("tools/get.tool.yaml") == "packs/travel.zip/tools/get.tool.yaml"
    assert archive.files("tools").read("../pack.yaml") == PACK
    assert len(archive.digest) == 64
    assert archive.size == len(zipped())


def test_a_pack_in_the_one_folder_at_the_top():
    inside = {f"travel-1.0/{name}": content for name, content in PLAIN.items()}
    archive, problems = parse_archive("packs/travel.zip", zipped({"travel-1.0/": b""} | inside))
    assert problems == []
    assert dict(archive.contents) == PLAIN
    assert archive.place("tools/get.tool.yaml") == "packs/travel.zip/travel-1.0/tools/get.tool.yaml"


def test_what_a_mac_adds_is_no_second_folder():
    files = {f"travel/{name}": content for name, content in PLAIN.items()}
    files |= {"__MACOSX/travel/._pack.yaml": b"\0", ".DS_Store": b"\0"}
    archive, problems = parse_archive("t.zip", zipped(files))
    assert problems == []
    assert dict(archive.contents) == PLAIN


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"tools/a.yaml": TOOL},
        {"a/pack.yaml": PACK, "b/pack.yaml": PACK},
        {"a/b/pack.yaml": PACK},
        {"a/pack.yaml": PACK, "readme": b""},
    ],
)
def test_an_archive_without_a_pack_is_read_as_it_is(files):
    archive, problems = parse_archive("t.zip", zipped(files))
    assert problems == []
    assert (archive.top, archive.pack_file, dict(archive.contents)) == ("", "", files)


@pytest.mark.parametrize("name", ["pack.yaml", "pack.yml", "pack.json", "top/pack.json"])
def test_the_file_that_makes_it_a_pack(name):
    archive, _ = parse_archive("t.zip", zipped({name: b"{}"}))
    assert archive.pack_file == name.removeprefix("top/")


def test_documents_come_in_the_order_of_a_folder_without_hidden_ones():
    files = dict.fromkeys(
        [
            "b/x.yaml",
            "b.yaml",
            "b/a/x.json",
            "a/z.yml",
            ".git/c.yaml",
            "a/.h.yaml",
            "__pycache__/c.json",
            "r.md",
        ],
        b"",
    )
    assert document_names(PLAIN | files) == [
        "b.yaml",
        "pack.yaml",
        "a/z.yml",
        "b/x.yaml",
        "b/a/x.json",
        "tools/get.tool.yaml",
    ]


class Unseekable(io.RawIOBase):
    """A pipe: zipfile puts the sums behind the contents."""

    def __init__(self):
        self.written = bytearray()

    def writable(self):
        return True

    def write(self, data):
        self.written += data
        return len(data)

    def getvalue(self):
        return bytes(self.written)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_sums_behind_the_contents_are_read(method):
    data = zipped(method=method, stream=Unseekable())
    assert b"PK\x07\x08" in data
    assert plain_read(data) == PLAIN
    without_mark = data.replace(b"PK\x07\x08", b"PK\x07\x09", 1)
    assert codes(without_mark) == ["archive_damaged"]


def test_sums_behind_the_contents_may_come_without_their_mark():
    name, content = b"pack.yaml", PACK
    sums = struct.pack("<3L", zlib.crc32(content), len(content), len(content))
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 8, 0, 0, 0, 0, 0, 0, len(name), 0) + name
    entry = (
        struct.pack("<4s6H", b"PK\x01\x02", 20, 20, 8, 0, 0, 0)
        + sums
        + struct.pack("<5H2L", 9, *[0] * 6)
        + name
    )
    start = len(local + content + sums)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(entry), start, 0)
    assert plain_read(local + content + sums + entry + end) == {"pack.yaml": PACK}


def test_a_comment_is_no_surplus():
    assert plain_read(zipped(comment=b"deadbeef" * 5)) == PLAIN


@pytest.mark.parametrize(
    "comment", [zipped({"pack.yaml": b"name: other\nversion: 1.0.0\n"}), b"a PK\x05\x06 b", b"PK\x05\x06"]
)
def test_what_others_may_take_for_the_end_record_is_refused_in_a_comment(comment):
    assert codes(zipped(comment=comment)) == ["archive_damaged"]


def test_what_looks_like_an_end_record_is_fine_in_a_content():
    files = {"inner.zip": WHOLE, "marks": b"PK\x05\x06" * 9}
    assert plain_read(zipped(files, zipfile.ZIP_STORED)) == files


def test_a_field_that_says_when_a_file_changed_is_passed_over():
    entry = info("pack.yaml")
    entry.extra = struct.pack("<2HBL", 0x5455, 5, 1, 1_700_000_000)
    assert plain_read(zipped({entry: PACK})) == {"pack.yaml": PACK}


HOSTILE_NAMES = [
    "../x",
    "a/../x",
    "a/..",
    "./x",
    "a//x",
    "/etc/passwd",
    "//x",
    "a\\x",
    "C:/x",
    "C:x",
    "a b",
    "a\nb",
    "a\x1b[31mb",
    "é.yaml",
    "e\u0301.yaml",
    "\u202efdp.yaml",
    "a" * 256,
    "/".join("a" * (NAME_DEPTH + 1)),
    "/".join("a" * 120),
    "~/x" * 2,
    "..",
    ".",
    "",
    "a/./b",
    "nul\ttab",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_could_lead_elsewhere_refuses_the_archive(name):
    archive, problems = parse_archive("t.zip", zipped(PLAIN | {info(name): b"x"}))
    assert archive is None
    assert [problem.code for problem in problems] == ["archive_unsafe_name"]
    assert problems[0].message.isprintable()
    assert len(problems[0].message) < 200


def test_a_name_with_a_nul_is_refused():
    data = zipped({"pack.yaml": PACK, "aXb": b"x"}).replace(b"aXb", b"a\0b")
    assert codes(data) == ["archive_unsafe_name"]


@pytest.mark.parametrize(
    "name", ["-", "a.b_c-d", "...", "a/...b", "/".join("a" * NAME_DEPTH), "a" * 255, "a/"]
)
def test_names_that_are_plain_everywhere(name):
    assert name in {**plain_read(zipped({name: b""})), "a/": 0}


IRREGULAR = [
    info("x", mode=stat.S_IFLNK | 0o777),
    info("x", mode=stat.S_IFIFO | 0o644),
    info("x", mode=stat.S_IFCHR | 0o644),
    info("x", mode=stat.S_IFBLK | 0o644),
    info("x", mode=stat.S_IFSOCK | 0o644),
    info("x", mode=stat.S_IFDIR | 0o755),
    info("x", mode=0o160000),
    info("x/", mode=stat.S_IFREG | 0o644),
    info("x/", mode=stat.S_IFLNK | 0o644),
    info("x", system=0, attributes=0x10),
    info("x", system=0, attributes=0x08),
    info("x", system=0, attributes=0x400),
    info("x", system=0, mode=stat.S_IFLNK | 0o777),
]


@pytest.mark.parametrize("entry", IRREGULAR)
def test_only_files_and_folders_are_read(entry):
    content = b"" if entry.filename.endswith("/") else b"../../etc/passwd"
    assert codes(zipped(PLAIN | {entry: content})) == ["archive_not_a_file"]


COLLIDING = [
    [("tools/a", b"1"), ("tools/A", b"2")],
    [("Tools/a", b"1"), ("tools/b", b"2")],
    [("a", b"1"), ("a/b", b"2")],
    [("a/b", b"2"), ("a", b"1")],
    [("a/", b""), ("a", b"1")],
    [("A/", b""), ("a", b"1")],
    [("x/y/z", b""), ("x/Y/z", b"1")],
]


@pytest.mark.parametrize("files", COLLIDING)
def test_two_entries_never_mean_one_place(files):
    assert codes(zipped([("pack.yaml", PACK), *files])) == ["archive_duplicate_name"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_refuses_the_archive():
    assert codes(zipped([*PLAIN.items(), ("pack.yaml", b"name: other")])) == ["archive_duplicate_name"]


def test_a_folder_may_be_listed_beside_its_files():
    assert plain_read(zipped({"a/b": b"1", "a/": b"", "a/c/": b""})) == {"a/b": b"1"}


def test_a_folder_with_content_is_refused():
    data = zipped({"pack.yaml": PACK, "a_": b"content"}).replace(b"a_", b"a/")
    assert codes(data) == ["archive_damaged"]


def patched(data, at, form, value):
    """The bytes with one field changed."""
    field = struct.pack(form, value)
    return data[:at] + field + data[at + len(field) :]


def central(data, index=0):
    at = -1
    for _ in range(index + 1):
        at = data.index(b"PK\x01\x02", at + 1)
    return at


def end(data):
    return data.rindex(b"PK\x05\x06")


def shifted(data, prefix):
    """The archive behind some bytes, with every offset mended, as self-extracting archives are."""
    out = bytearray(prefix + data)
    for index in range(data.count(b"PK\x01\x02")):
        at = len(prefix) + central(data, index) + 42
        out[at : at + 4] = struct.pack("<L", struct.unpack_from("<L", out, at)[0] + len(prefix))
    at = len(prefix) + end(data) + 16
    out[at : at + 4] = struct.pack("<L", struct.unpack_from("<L", out, at)[0] + len(prefix))
    return bytes(out)


def between(data):
    """A few bytes before the directory, its offset mended."""
    at = central(data)
    data = data[:at] + b"more" + data[at:]
    return patched(data, end(data) + 16, "<L", at + 4)


WHOLE = zipped()

CRAFTED = [
    ("no zip", b"just a text", ["archive_damaged"]),
    ("empty file", b"", ["archive_damaged"]),
    ("half", WHOLE[: len(WHOLE) // 2], ["archive_damaged"]),
    ("behind", WHOLE + b"\0", ["archive_damaged"]),
    ("prefix", b"#!/bin/sh\n" + WHOLE, ["archive_surplus"]),
    ("mended prefix", shifted(WHOLE, b"#!/bin/sh\n"), ["archive_surplus"]),
    ("gap", between(WHOLE), ["archive_surplus"]),
    ("disk", patched(WHOLE, end(WHOLE) + 4, "<H", 1), ["archive_unsupported"]),
    ("entry on disk", patched(WHOLE, central(WHOLE) + 34, "<H", 1), ["archive_unsupported"]),
    ("version", patched(WHOLE, central(WHOLE) + 6, "<H", 64), ["archive_unsupported"]),
    ("zip64 count", patched(WHOLE, end(WHOLE) + 10, "<H", 0xFFFF), ["archive_unsupported"]),
    ("counts differ", patched(WHOLE, end(WHOLE) + 8, "<H", 1), ["archive_unsupported"]),
    (
        "count too low",
        patched(patched(WHOLE, end(WHOLE) + 8, "<H", 1), end(WHOLE) + 10, "<H", 1),
        ["archive_surplus", "archive_surplus"],
    ),
    (
        "count too high",
        patched(patched(WHOLE, end(WHOLE) + 8, "<H", 3), end(WHOLE) + 10, "<H", 3),
        ["archive_damaged"],
    ),
    ("directory beyond", patched(WHOLE, end(WHOLE) + 16, "<L", 1 << 30), ["archive_damaged"]),
    ("encrypted", patched(patched(WHOLE, central(WHOLE) + 8, "<H", 1), 6, "<H", 1), ["archive_unsupported"]),
    (
        "patch data",
        patched(patched(WHOLE, central(WHOLE) + 8, "<H", 32), 6, "<H", 32),
        ["archive_unsupported"],
    ),
    ("lzma", zipped(method=zipfile.ZIP_LZMA), ["archive_unsupported"] * 2),
    ("bzip2", zipped(method=zipfile.ZIP_BZIP2), ["archive_unsupported"] * 2),
    ("flags differ", patched(WHOLE, 6, "<H", 2048), ["archive_damaged"]),
    ("name differs", WHOLE.replace(b"pack.yaml", b"pick.yaml", 1), ["archive_damaged"]),
    ("sum differs", patched(WHOLE, 14, "<L", 7), ["archive_damaged"]),
    ("size differs", patched(WHOLE, 22, "<L", 7), ["archive_damaged"]),
    ("no header there", patched(WHOLE, central(WHOLE) + 42, "<L", 3), ["archive_damaged"]),
    (
        "header beyond",
        patched(WHOLE, central(WHOLE) + 42, "<L", 1 << 31),
        ["archive_surplus", "archive_damaged"],
    ),
    (
        "wrong sum",
        patched(patched(WHOLE, 14, "<L", 7), central(WHOLE) + 16, "<L", 7),
        ["archive_damaged"],
    ),
    (
        "smaller than it says",
        patched(patched(WHOLE, 22, "<L", 99), central(WHOLE) + 24, "<L", 99),
        ["archive_damaged"],
    ),
    (
        "larger than it says",
        patched(patched(WHOLE, 22, "<L", 9), central(WHOLE) + 24, "<L", 9),
        ["archive_damaged"],
    ),
    (
        "says four gigabytes",
        patched(patched(WHOLE, 22, "<L", 0xFFFFFFFF), central(WHOLE) + 24, "<L", 0xFFFFFFFF),
        ["archive_too_large"] * 2,
    ),
]


@pytest.mark.parametrize(
    ("data", "expected"), [case[1:] for case in CRAFTED], ids=[case[0] for case in CRAFTED]
)
def test_an_archive_that_tells_two_stories_is_refused(data, expected):
    assert codes(data) == expected


@pytest.mark.parametrize(("kind", "says"), [(0x0001, "zip64"), (0x7075, "second file name")])
def test_fields_that_change_size_or_name_are_refused(kind, says):
    entry = info("a")
    entry.extra = struct.pack("<2H8s", kind, 8, b"\0" * 8)
    problems = parse_archive("t.zip", zipped(PLAIN | {entry: b"x"}))[1]
    assert {problem.code for problem in problems} == {"archive_unsupported"}
    assert all(says in problem.message for problem in problems)


def test_fields_that_end_early_are_refused():
    entry = info("a")
    entry.extra = b"\x55\x54\xff\x00\x00"
    assert set(codes(zipped(PLAIN | {entry: b"x"}))) == {"archive_damaged"}


def test_entries_that_share_their_bytes_are_refused():
    """The bomb that needs no nesting: many lines of the directory, one content."""
    data = zipped({"pack.yaml": PACK, "a": b"0" * 1000, "b": b"0" * 1000})
    second, third = central(data, 1), central(data, 2)
    data = patched(data, third + 42, "<L", struct.unpack_from("<L", data, second + 42)[0])
    assert "archive_overlap" in codes(data)


def test_a_content_that_reaches_into_the_directory_is_refused():
    data = zipped({"pack.yaml": PACK}, zipfile.ZIP_STORED)
    longer = len(PACK) + 20
    for at in (18, 22, central(data) + 20, central(data) + 24):
        data = patched(data, at, "<L", longer)
    assert codes(data) == ["archive_overlap"]


def test_deflated_bytes_behind_the_end_of_a_content_are_refused():
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(PACK) + packer.flush()
    data = zipped({"pack.yaml": packed + b"hidden"}, zipfile.ZIP_STORED)
    for at, form, value in [
        (8, "<H", 8),
        (14, "<L", zlib.crc32(PACK)),
        (22, "<L", len(PACK)),
        (central(data) + 10, "<H", 8),
        (central(data) + 16, "<L", zlib.crc32(PACK)),
        (central(data) + 24, "<L", len(PACK)),
    ]:
        data = patched(data, at, form, value)
    assert codes(data) == ["archive_damaged"]


def bounded(data):
    """Codes, with the proof that neither time nor memory ran away."""
    tracemalloc.start()
    began = time.process_time()
    try:
        told = codes(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    assert time.process_time() - began < 30
    return told


def test_a_bomb_is_refused_before_anything_is_inflated():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pack.yaml", PACK)
        with archive.open("zeros.json", "w") as file:
            for _ in range(300):
                file.write(bytes(1 << 20))
    assert bounded(buffer.getvalue()) == ["archive_too_large"] * 2


@pytest.mark.exhaustive
def test_a_bomb_that_lies_about_its_size_is_stopped_at_what_it_said():
    data = zipped({"pack.yaml": PACK, "zeros": bytes(64 << 20)})
    line = central(data, 1)
    header = struct.unpack_from("<L", data, line + 42)[0]
    data = patched(patched(data, line + 24, "<L", 60_000), header + 22, "<L", 60_000)
    assert bounded(data) == ["archive_damaged"]


def test_many_files_are_refused_without_reading_them():
    names = {f"f{index}": b"" for index in range(ENTRIES)}
    assert bounded(zipped(PLAIN | names)) == ["archive_too_large"]


def raw_zip(entries):
    """An archive of (name, further fields) as bytes, all of whose entries claim the place of the first."""
    name, extra = entries[0]
    header = (
        struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, len(name), len(extra)) + name + extra
    )
    lines = b"".join(
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, *[0] * 7, len(name), len(extra), *[0] * 5)
        + name
        + extra
        for name, extra in entries
    )
    count = len(entries)
    return header + lines + struct.pack("<4s4H2LH", _END_MARK, 0, 0, count, count, len(lines), len(header), 0)


COSTLY = {
    "names": [(b"\xff" * 9_900, b"")] * ENTRIES,
    "names with folders": [(b"a/" * 4_900 + b"%d" % index, b"") for index in range(ENTRIES)],
    "safe names with folders": [(b"a/" * 120 + b"%d" % index, b"") for index in range(ENTRIES)],
    "fields": [(b"a", b"\0" * 9_900)] * ENTRIES,
    "short fields": [(b"a", b"\0" * 512)] * ENTRIES,
    "fields of one header": [(b"a", b"\0" * 60_000), *[(b"a", b"")] * (ENTRIES - 1)],
}


@pytest.mark.parametrize(
    "entries", sample((pytest.param(entries, id=name) for name, entries in COSTLY.items()), one_in=3)
)
def test_a_directory_made_to_cost_time_is_refused_soon(entries):
    data = raw_zip(entries)
    assert len(data) <= ARCHIVE_BYTES
    began = time.process_time()
    assert bounded(data)
    assert time.process_time() - began < 20


def test_end_records_without_end_cost_little():
    assert bounded(WHOLE + (_END_MARK + bytes(18)) * 3000) == ["archive_surplus"]


def test_as_many_files_as_allowed_are_read():
    names = {f"f{index}": b"" for index in range(ENTRIES - len(PLAIN))}
    assert bounded(zipped(PLAIN | names)) == []


def test_files_that_are_too_large_together_are_refused():
    noise = random.Random(1).randbytes(FILE_BYTES)
    names = {f"f{index}": noise for index in range(CONTENT_BYTES // FILE_BYTES)}
    assert bounded(zipped(PLAIN | names, zipfile.ZIP_STORED)) == ["archive_too_large"]


def test_a_file_that_is_too_large_is_refused():
    noise = random.Random(1).randbytes(FILE_BYTES + 1)
    assert codes(zipped(PLAIN | {"a": noise}, zipfile.ZIP_STORED)) == ["archive_too_large"]


def test_an_archive_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "huge.zip"
    with path.open("wb") as file:
        file.truncate(8 << 30)
    tracemalloc.start()
    archive, [problem] = open_archive(path)
    assert tracemalloc.get_traced_memory()[1] < 2 * ARCHIVE_BYTES + (1 << 20)
    tracemalloc.stop()
    assert archive is None
    assert problem.code == "archive_too_large"


def test_all_that_is_wrong_is_told_at_once_and_bounded():
    files = PLAIN | {
        info("../x"): b"",
        info("l", mode=stat.S_IFLNK): b"y",
        "A": b"",
        "a": b"",
        "big": bytes(1 << 21),
    }
    assert sorted(set(codes(zipped(files)))) == [
        "archive_duplicate_name",
        "archive_not_a_file",
        "archive_too_large",
        "archive_unsafe_name",
    ]
    told = codes(zipped(PLAIN | {f"../{index}": b"" for index in range(MOST + 50)}))
    assert len(told) == MOST + 1
    assert told[-1] == "too_many_problems"


def test_overlaps_are_seen_behind_any_number_of_other_faults():
    """Else contents that overlap would be inflated, each of them up to the size of the archive."""
    noise = random.Random(2).randbytes(1000)
    data = zipped({f"../{index}": b"" for index in range(MOST + 5)} | {"a": noise, "b": noise}, 0)
    lines = data.count(b"PK\x01\x02")
    second = struct.unpack_from("<L", data, central(data, lines - 2) + 42)[0]
    faults = ArchiveFaults("x")
    assert read_zip(patched(data, central(data, lines - 1) + 42, "<L", second), faults) == {}
    assert faults.told("archive_overlap")


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "nul"])
def test_what_is_no_file_is_a_problem(tmp_path, kind):
    path = tmp_path / ("x\0.zip" if kind == "nul" else "x.zip")
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        __import__("os").mkfifo(path)
    archive, [problem] = open_archive(path, "packs/x.zip")
    assert archive is None
    assert problem.code == ("path_not_found" if kind == "absent" else "file_unreadable")
    assert problem.source == "packs/x.zip"


def test_an_archive_is_read_from_disk(tmp_path):
    path = tmp_path / "travel.zip"
    path.write_bytes(WHOLE)
    archive, problems = open_archive(path)
    assert (dict(archive.contents), archive.source, problems) == (PLAIN, str(path), [])


SAFE = st.from_regex(r"[a-z0-9_-]{1,6}(\.[a-z]{1,3})?", fullmatch=True)
PATHS = st.lists(SAFE, min_size=1, max_size=4).map("/".join)
FILES = st.dictionaries(PATHS, st.binary(max_size=400), max_size=6).filter(
    lambda files: not any(other.startswith(f"{name}/") for name in files for other in files)
)


@given(FILES, st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]), st.booleans())
def test_what_zipfile_writes_reads_back_equal(files, method, piped):
    assert plain_read(zipped(files, method, stream=Unseekable() if piped else None)) == files


@settings(max_examples=examples(300))
@given(
    FILES,
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    st.booleans(),
    st.data(),
)
def test_a_changed_byte_never_raises_and_never_changes_a_content(files, method, piped, data):
    archive = bytearray(zipped(files, method, stream=Unseekable() if piped else None))
    at = data.draw(st.integers(0, len(archive) - 1))
    archive[at] ^= data.draw(st.integers(1, 255))
    assert plain_read(bytes(archive)) in (None, files)


@given(FILES, st.data())
def test_a_cut_or_lengthened_archive_is_refused(files, data):
    archive = zipped(files)
    cut = data.draw(st.integers(0, len(archive) - 1))
    assert plain_read(archive[:cut]) is None
    assert plain_read(archive + data.draw(st.binary(min_size=1, max_size=30))) is None
    assert plain_read(data.draw(st.binary(min_size=1, max_size=30)) + archive) is None


def test_every_changed_byte_of_one_archive():
    for data in (WHOLE, zipped(stream=Unseekable())):
        for at in range(len(data)):
            for bit in range(8):
                changed = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
                assert plain_read(changed) in (None, PLAIN)


@given(st.binary(max_size=200))
def test_any_bytes_between_a_header_and_an_end_never_raise(noise):
    size = len(noise)
    for here, length, offset in [(1, size, 0), (1, max(size - 4, 0), 4), (3, size // 2, size - size // 2)]:
        ending = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, here, here, length, offset, 0)
        assert plain_read(noise + ending) is None
