"""The parts of a mocked answer: text, images, audio, resources."""

from __future__ import annotations

import asyncio
import base64

import pytest

from in_memory import loaded, mocked, problems_of, runtime_of
from toolcrib import Content, Outcome

PIXEL = b"\x89PNG\x00\xff"
CODED = base64.b64encode(PIXEL).decode()


def parts(block, arguments=None, files=None):
    result = asyncio.run(runtime_of(mocked(block), files).call("tool", arguments))
    assert result.outcome is Outcome.OK, result.message
    return result.content


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ("{type: text, text: Sunny}", Content("text", text="Sunny")),
        ('{type: text, text: "in {{ args.city }}", title: "{{ args.city }}"}', Content("text", text="in Oslo", title="Oslo")),
        ('{type: text, text: "{{ args }}"}', Content("text", text='{"city":"Oslo"}')),
        ("{type: image, file: a.png, mime_type: image/png}", Content("image", data=CODED, mime_type="image/png")),
        (f"{{type: image, data: '{CODED}', mime_type: image/png, title: Map}}", Content("image", data=CODED, mime_type="image/png", title="Map")),
        ('{type: image, uri: "https://example.com/{{ args.city }}.png"}', Content("image", uri="https://example.com/Oslo.png")),
        ("{type: audio, file: a.png, mime_type: audio/ogg}", Content("audio", data=CODED, mime_type="audio/ogg")),
        ("{type: resource, uri: 'file:///a'}", Content("resource", uri="file:///a")),
        ("{type: resource, uri: 'file:///a', text: hi, mime_type: text/plain}", Content("resource", text="hi", uri="file:///a", mime_type="text/plain")),
        ("{type: resource, uri: 'file:///a', file: a.png, mime_type: image/png}", Content("resource", data=CODED, uri="file:///a", mime_type="image/png")),
        (f"{{type: resource, uri: 'file:///a', data: '{CODED}', mime_type: image/png}}", Content("resource", data=CODED, uri="file:///a", mime_type="image/png")),
    ],
)  # fmt: skip
def test_a_part_is_what_its_entry_says(entry, part):
    assert parts(f"content: [{entry}]", {"city": "Oslo"}, {"a.png": PIXEL}) == (part,)


def test_parts_stand_beside_any_reply_or_alone():
    text = "content: [{type: text, text: a}, {type: text, text: b}]"
    for reply in ("", "result: 1", "template: x", "generate: true", "result_file: a.json"):
        assert [part.text for part in parts(f"{reply}\n{text}", None, {"a.json": "1"})] == ["a", "b"]


def test_parts_beside_an_error_replace_its_text():
    result = asyncio.run(runtime_of(mocked("error: no\ncontent: [{type: text, text: why}]")).call("tool"))
    assert (result.message, result.content) == ("no", (Content("text", text="why"),))


def test_parts_alone_answer_no_value():
    result = asyncio.run(runtime_of(mocked("content: [{type: text, text: a}]")).call("tool"))
    assert (result.outcome, result.value) == (Outcome.OK, None)


def test_text_of_a_file_or_of_data_is_never_read_as_an_expression():
    files = {"a.txt": "{{ nope }}"}
    block = "content: [{type: resource, uri: 'a:b', file: a.txt, mime_type: text/plain}]"
    assert base64.b64decode(parts(block, None, files)[0].data) == b"{{ nope }}"


@pytest.mark.parametrize("data", ["a", "a===", "a b c", "ÅÅÅÅ", "-_-_"])
def test_data_that_is_no_base64_is_found_when_the_tool_is_loaded(data):
    text = mocked(f"content: [{{type: image, data: '{data}', mime_type: image/png}}]")
    assert problems_of(text) == [("invalid_base64", "/mock/content/0/data")]


def test_a_file_that_is_not_there_is_found_when_the_tool_is_loaded():
    text = mocked("content: [{type: image, file: b.png, mime_type: image/png}]")
    assert problems_of(text, {"a.png": PIXEL}) == [("file_unreadable", "/mock/content/0/file")]


@pytest.mark.parametrize(
    "entry",
    [
        "{type: text}",
        "{type: text, text: a, mime_type: text/plain}",
        "{type: video, uri: a}",
        "{type: image}",
        "{type: image, file: a.png}",
        "{type: image, file: a.png, data: YQ==, mime_type: image/png}",
        "{type: image, uri: a, mime_type: PNG}",
        "{type: audio, uri: a}",
        "{type: resource, text: a}",
        "{type: resource, uri: a, text: b, data: YQ==}",
        "{type: text, text: a, colour: red}",
    ],
)
def test_an_entry_of_the_wrong_shape_is_refused(entry):
    problems = loaded(mocked(f"content: [{entry}]"), {"a.png": PIXEL}).problems
    assert problems
    assert all(problem.pointer.startswith("/mock/content") for problem in problems)


def test_an_image_by_address_has_no_media_type_unless_given():
    assert parts("content: [{type: image, uri: 'a:b', mime_type: image/png}]")[0].mime_type == "image/png"
