"""Multipart bodies, read back by the standard library's parser."""

from __future__ import annotations

import base64
from email.parser import BytesParser
from email.policy import HTTP

import pytest

from drafting import closed, compiled, faults, misfit, sent, tried
from toolcrib.security.secrets import SecretResolver

PIXEL = b"\x89PNG\r\n\x00\xff"
CODED = base64.b64encode(PIXEL).decode()


def block(**fields):
    return {"method": "POST", "body": {"multipart": fields}}


def parts(fields, arguments=None, **options):
    """(name, name of the file, media type or None, content) of each part."""
    request = sent(block(**fields), arguments, **options)
    (content_type,) = [value for name, value in request.headers if name == "Content-Type"]
    message = BytesParser(policy=HTTP).parsebytes(
        f"Content-Type: {content_type}\r\n\r\n".encode() + request.body
    )
    return [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part["content-type"],
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    ]


def test_fields_and_files_in_order():
    fields = {
        "title": "a {{ args.title }}",
        "photo": {"file": "{{ args.photo }}"},
        "count": 3,
        "gone": "{{ args.gone }}",
        "list": "{{ args.list }}",
        "no_file": {"file": "{{ args.gone }}"},
    }
    arguments = {
        "title": "å",
        "photo": {"name": "p.png", "content_type": "image/png", "data": CODED},
        "list": [1, {"a": 1}],
    }
    assert parts(fields, arguments) == [
        ("title", None, None, "a å".encode()),
        ("photo", "p.png", "image/png", PIXEL),
        ("count", None, None, b"3"),
        ("list", None, None, b"1"),
        ("list", None, None, b'{"a":1}'),
    ]


@pytest.mark.parametrize(
    ("value", "name", "media_type", "content"),
    [
        (f"data:image/png;base64,{CODED}", "file", "image/png", PIXEL),
        ("data:,a%20b", "file", "application/octet-stream", b"a b"),
        ("DATA:;charset=utf-8,x", "file", "text/plain;charset=utf-8", b"x"),
        ("data:text/csv;BASE64,YSUyMGI%3D", "file", "text/csv", b"a%20b"),
        ({"data": CODED}, "file", "application/octet-stream", PIXEL),
        ({"data": "", "name": ""}, "file", "application/octet-stream", b""),
        ({"data": CODED, "name": 'ø ".txt'}, "ø %22.txt", "application/octet-stream", PIXEL),
    ],
)
def test_an_argument_is_a_file(value, name, media_type, content):
    request = sent(block(f={"file": "{{ args.f }}"}), {"f": value})
    head, _blank, rest = request.body.partition(b"\r\n\r\n")
    assert f'name="f"; filename="{name}"\r\nContent-Type: {media_type}' in head.decode()
    assert rest.rpartition(b"\r\n--")[0] == content


def test_several_files_of_one_field():
    files = ["data:,1", {"name": "b.txt", "data": "Mg=="}]
    found = parts({"f": {"file": "{{ args.f }}", "content_type": "text/plain"}}, {"f": files})
    assert found == [("f", "file", "text/plain", b"1"), ("f", "b.txt", "text/plain", b"2")]


def test_name_and_media_type_may_be_written():
    fields = {
        "f": {
            "file": "{{ args.f }}",
            "name": "x-{{ args.n }}.csv",
            "content_type": 'text/csv; header="present"',
        }
    }
    arguments = {"f": {"name": "other.bin", "content_type": "a/b", "data": ""}, "n": 1}
    assert parts(fields, arguments) == [("f", "x-1.csv", 'text/csv; header="present"', b"")]
    fields = {"f": {"file": "{{ args.f }}", "name": "{{ args.name }}"}}
    assert parts(fields, {"f": {"name": "a.bin", "data": ""}}) == [
        ("f", "a.bin", "application/octet-stream", b"")
    ]


def test_a_file_beside_the_descriptor_is_read_when_the_tool_is_bound():
    fields = {
        "f": {"file": "data/logo.png"},
        "g": {"file": "data/logo.png", "name": "{{ args.n }}"},
        "h": {"file": "x"},
    }
    files = {"data/logo.png": PIXEL, "x": b"raw"}
    assert parts(fields, {"n": "mine.png"}, files=files) == [
        ("f", "logo.png", "image/png", PIXEL),
        ("g", "mine.png", "image/png", PIXEL),
        ("h", "x", "application/octet-stream", b"raw"),
    ]
    assert faults(block(f={"file": "nope.png"}), files=files) == [
        ("file_unreadable", "/live/body/multipart/f/file")
    ]


def test_a_file_may_be_written_as_data():
    assert parts({"f": {"file": "data:text/csv,a%2Cb"}}) == [("f", "file", "text/csv", b"a,b")]
    assert faults(block(f={"file": "data:text/csv"})) == [("wrong_form", "/live/body/multipart/f/file")]


def test_a_path_is_not_looked_up():
    problems = tried(
        block(f={"file": "${PATH_OF_IT}"}), secrets=SecretResolver({"PATH_OF_IT": "/etc/passwd"})
    )[1]
    assert [(problem.code, problem.pointer) for problem in problems] == [
        ("expression_not_allowed", "/live/body/multipart/f/file")
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("/etc/passwd", "is not a file: paths and URLs in arguments are never read"),
        ("tool.yaml", "is not a file: paths and URLs in arguments are never read"),
        ("https://example.com/a.png", "is not a file: paths and URLs in arguments are never read"),
        (3, "is a number, but a file is required"),
        (["data:,a", None], "is null, but a file is required"),
        ("data:text/plain", "is not a valid `data:` URI: missing comma"),
        ("data:;base64,a", "contains data that is not valid base64"),
        ("data:;base64,åå", "contains data that is not valid base64"),
        ("data:a\r\nX: 1,x", "contains an invalid media type"),
        ({}, "is not a file: `name`, `content_type` and `data` must be text"),
        ({"data": "", "name": 1}, "is not a file: `name`, `content_type` and `data` must be text"),
        ({"data": "x"}, "contains data that is not valid base64"),
        ({"data": "å"}, "contains data that is not valid base64"),
        ({"data": "", "content_type": "a/b\r\nX: 1"}, "contains an invalid media type"),
        (
            {"data": "", "name": "a\r\nb"},
            "contains a file name with a slash, a backslash or a control character",
        ),
        (
            {"data": "", "name": "../a"},
            "contains a file name with a slash, a backslash or a control character",
        ),
        ({"data": "", "name": "\ud800"}, "contains a file name with a lone surrogate"),
    ],
)
def test_what_is_no_file_is_refused(value, message):
    error = misfit(block(f={"file": "{{ args.f }}"}), {"f": value})
    assert (error.pointer, error.message, error.at) == ("/f", f"`f` {message}", "/live/body/multipart/f/file")


def test_the_name_of_a_file_is_a_text():
    fields = {"f": {"file": "data:,a", "name": "{{ args.n }}"}}
    assert misfit(block(**fields), {"n": 1}).message == "`n` is a number, but a file name must be text"
    assert misfit(block(**fields), {"n": "a/b"}).at == "/live/body/multipart/f/name"


def test_names_and_media_types_of_the_block_are_checked():
    assert faults(block(**{"a\nb": 1, "c": {"file": "data:,x", "content_type": "png"}})) == [
        ("wrong_form", "/live/body/multipart/a\nb"),
        ("wrong_form", "/live/body/multipart/c/content_type"),
    ]


def test_the_boundary_is_our_own():
    written = {**block(a=1), "headers": {"Content-Type": "multipart/form-data; boundary=x"}}
    assert faults(written) == [("duplicate_header", "/live/headers/Content-Type")]


def test_equal_arguments_make_equal_bodies_with_a_boundary_of_their_own():
    request = compiled(block(a="{{ args.a }}", f={"file": "{{ args.f }}"}))
    one, again, other = (request.draft({"a": text, "f": "data:,x"}).finished() for text in ("1", "1", "2"))
    assert one == again
    assert one.headers[-1] != other.headers[-1]


def test_a_body_may_turn_out_empty():
    request = sent(block(a="{{ args.a }}"))
    boundary = request.headers[-1][1].partition("boundary=")[2]
    assert request.body == f"--{boundary}--\r\n".encode()


def test_parts_of_a_body_read_arguments():
    request = compiled(
        block(a="{{ args.x }}", f={"file": "{{ args.f }}", "name": "{{ args.n }}"}), closed("x", "f", "n")
    )
    assert [(part.name, part.reads) for part in request.parts] == [("a", ("x",)), ("f", ("f", "n"))]


def test_a_field_with_its_media_type_is_one_part():
    fields = {
        "meta": {"value": "{{ args.meta }}", "content_type": "application/json"},
        "list": {"value": ["{{ args.meta }}", 1], "content_type": "application/vnd.api+json"},
        "note": {"value": "{{ args.note }}", "content_type": "text/csv"},
        "text": {"value": "{{ args.note }}", "content_type": "application/json"},
        "gone": {"value": "{{ args.gone }}", "content_type": "application/json"},
    }
    assert parts(fields, {"meta": {"a": 1}, "note": "a,b"}) == [
        ("meta", None, "application/json", b'{"a":1}'),
        ("list", None, "application/vnd.api+json", b'[{"a":1},1]'),
        ("note", None, "text/csv", b"a,b"),
        ("text", None, "application/json", b'"a,b"'),
    ]
    wrong = block(meta={"value": 1, "content_type": "json"})
    assert faults(wrong, closed()) == [("wrong_form", "/live/body/multipart/meta/content_type")]
