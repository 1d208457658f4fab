"""The documentation site: its pages, their order, its links, and the API reference."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from docs.scripts import script

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


SITE = script("site")


def test_the_navigation_lists_every_page_once():
    written = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    navigation = (DOCS / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert sorted(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)) == sorted(
        [*written, *SITE.OUTSIDE.values()]
    )


@pytest.mark.parametrize(
    ("file", "link", "expected"),
    [
        ("README.md", "docs/reference/cli.md", "reference/cli.md"),
        ("docs/how-to/ci.md", "../../ARCHITECTURE.md#rooms", "../explanation/architecture.md#rooms"),
        ("docs/how-to/ci.md", "../reference/cli-run.md", "../reference/cli-run.md"),
        ("benchmarks/RESULTS.md", "../README.md", "../index.md"),
        ("docs/how-to/ci.md", "#here", "#here"),
        ("docs/how-to/ci.md", "https://example.com/a.html", "https://example.com/a.html"),
    ],
)
def test_links_lead_to_pages_of_the_site(file, link, expected):
    code = f"\n```md\n[a]({link})\n```\n"
    assert SITE.with_links(f"[a]({link}){code}", file, SITE.page_of(file)) == f"[a]({expected}){code}"


@pytest.mark.parametrize("link", ["../../pyproject.toml", "../../packs/retail", "../mkdocs.yml"])
def test_a_link_to_something_that_is_no_page_stops_the_build(link):
    with pytest.raises(SystemExit, match=r"docs/how-to/ci\.md: the link to .* leads out of the site"):
        SITE.with_links(f"[a]({link})", "docs/how-to/ci.md", "how-to/ci.md")


def test_the_api_reference_has_every_public_name_once():
    public = {
        f"{module}.{name}".removeprefix("toolcrib.")
        for module in ("toolcrib", "toolcrib.acp", "toolcrib.provider", "toolcrib.testing")
        for name in import_module(module).__all__
    }
    # These are also in toolcrib.provider, whose page lists the first two.
    elsewhere = {"ToolPolicy", "ProviderMiddleware", "provider.Answer", "provider.Pending"}
    shown = [
        name
        for page in (DOCS / "reference").glob("python-*.md")
        for name in re.findall(r"^::: toolcrib\.(\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(shown) == sorted(public - elsewhere)
