"""Collect the pages of the documentation site in `build/pages`.

The README, the architecture and a few other pages are outside `docs/`, where code hosts show them. On all pages,
links are relative to the file, as code hosts follow them. This script puts the pages into one folder and rewrites the
links that lead out of `docs/` or into it. `make docs` builds the site from that folder.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from posixpath import join, normpath, relpath

ROOT = Path(__file__).parents[1]

BUILD = ROOT / "build"

OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "explanation/benchmarks.md",
    "packs/acp-client/README.md": "reference/editor-tools.md",
    "packs/retail/README.md": "tutorial-online-shop.md",
    "packs/workspace/README.md": "reference/file-tools.md",
}
"""File of the repository -> page of the site."""

LINK = re.compile(r"(?<=\]\()(?!https?://|#)([^)#\s]+)(?=[)#])")

FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def collect() -> None:
    """Write every page of the site, and the configuration beside them."""
    pages = BUILD / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "docs").rglob("*.md")}
    files |= {name: ROOT / name for name in OUTSIDE}
    for name, path in files.items():
        page = page_of(name)
        target = pages / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_links(path.read_text(encoding="utf-8"), name, page), encoding="utf-8")
    shutil.copy(ROOT / "docs" / "mkdocs.yml", BUILD)


def page_of(file: str) -> str:
    """The page that a file of the repository becomes; empty if it is not on the site."""
    return OUTSIDE.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else "")


def with_links(text: str, file: str, page: str) -> str:
    """The text of a file with the links that its page needs. Code blocks stay as they are."""

    def link_on_site(link: re.Match[str]) -> str:
        path = normpath(join(file, "..", link[1]))
        target = page_of(path)
        # The build reports a page that does not exist, but not a link to another kind of file.
        if not target.endswith(".md"):
            sys.exit(f"{file}: the link to {path} leads out of the site")
        return relpath(target, join(page, ".."))

    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(link_on_site, part) for part in parts[::2]]
    return "".join(parts)


if __name__ == "__main__":
    collect()
