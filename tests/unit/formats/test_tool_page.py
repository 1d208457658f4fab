"""The page of documentation, as Markdown and as HTML."""

from __future__ import annotations

from html.parser import HTMLParser

import markdown_it
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Descriptor, Example
from toolcrib.formats.tool_page import html_page, markdown_page, sections_of

TOOL = Descriptor(
    "find.order",
    title="Find an order",
    description="Find an order by its number.",
    tags=("orders",),
    input_schema={
        "type": "object",
        "properties": {
            "number": {"$ref": "#/$defs/number", "description": "The number | of the order."},
            "days": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
            "state": {"enum": ["open", "sent"]},
            "lines": {"type": "array", "items": {"type": "string"}},
            "either": {"type": ["string", "null"]},
        },
        "required": ["number"],
        "allOf": [{"properties": {"also": {"type": "boolean"}}, "required": ["also"]}],
        "$defs": {"number": {"type": "string", "pattern": "^[0-9]{4}$"}},
    },
    output_schema={"type": "object"},
    examples=(Example({"number": "1000"}, {"total": 40}, has_result=True),),
)


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


def rendered(text):
    return Page(markdown_it.MarkdownIt("commonmark").enable("table").render(text))


def page(form, *tools, title="Shop"):
    return form(title, "All orders.", sections_of(tools, {"find.order": "find_order"}))


def rows(shown):
    return {line.split("|")[1].strip(): line for line in shown.splitlines() if line.startswith("| `")}


def test_rows_of_arguments_follow_references_and_all_of():
    found = rows(page(markdown_page, TOOL))
    assert (
        found["`number`"]
        == r"| `number` | string | yes | The number \| of the order. Matches ^\[0-9\]\{4\}$. |"
    )
    assert found["`days`"] == "| `days` | integer | no | At least 1, at most 9. Default: 3. |"
    assert found["`state`"] == '| `state` | any | no | One of "open", "sent". |'
    assert "| array of string |" in found["`lines`"]
    assert "| string or null |" in found["`either`"]
    assert found["`also`"].startswith("| `also` | boolean | yes |")


@pytest.mark.parametrize("form", [markdown_page, html_page])
def test_everything_that_a_tool_says_is_on_the_page(form):
    text = page(form, TOOL, Descriptor("ping", deprecated="use pong", requires_confirmation=True))
    shown = "".join((Page(text) if form is html_page else rendered(text)).texts)
    for each in (
        "Shop",
        "All orders.",
        "find.order",
        "Find an order by its number.",
        "tag orders",
        '"total": 40',
        "No arguments.",
    ):
        assert each in shown
    assert "deprecated: use pong" in shown
    assert "needs approval" in shown


def test_the_html_page_loads_nothing_and_its_links_lead_somewhere():
    parsed = Page(page(html_page, TOOL))
    assert not {"script", "link", "img", "iframe"} & {*parsed.tags}
    links = [value for key, value in parsed.attributes if key == "href"]
    assert links == ["#find_order"]
    assert ("id", "find_order") in parsed.attributes


HOSTILE = st.text("<>&\"'`*_[]()#|\\\n-1. ab!~", min_size=1, max_size=12)


@given(HOSTILE, HOSTILE)
def test_no_text_is_taken_for_markup(description, meaning):
    tool = Descriptor(
        "find",
        description=f"x{description}",
        input_schema={
            "type": "object",
            "properties": {"a": {"type": "string", "description": f"y{meaning}"}},
        },
    )
    plain = Descriptor(
        "find",
        description="x",
        input_schema={"type": "object", "properties": {"a": {"type": "string", "description": "y"}}},
    )
    whole, base = Page(page(html_page, tool)), Page(page(html_page, plain))
    assert whole.tags == base.tags
    assert f"x{description}" in "".join(whole.texts)
    known = {"h1", "h2", "p", "em", "code", "table", "thead", "tbody", "tr", "th", "td", "pre"}
    shown = rendered(page(markdown_page, tool))
    assert {*shown.tags} <= known
    assert shown.tags.count("td") == 4
    assert "".join(meaning.split()) in "".join("".join(shown.texts).split())
