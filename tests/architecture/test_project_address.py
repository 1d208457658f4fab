"""The address of the project stands in `pyproject.toml`; what repeats it says the same."""

from __future__ import annotations

import re
import tomllib

ADDRESS = re.compile(r"https://[\w.-]+/[\w.-]+/toolcrib(?=[\s\"'/)#]|$)", re.MULTILINE)
ACTION = re.compile(r"uses: ([\w.-]+/toolcrib)@")


def test_every_address_of_the_project_is_the_one_of_its_metadata(root):
    urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    address = urls["Source"]
    assert [url for url in urls.values() if not (url + "/").startswith(address + "/")] == []
    published = [
        *root.glob("*.*"),
        *root.glob(".github/**/*.*"),
        *(root / "docs").rglob("*.*"),
        *(path for path in (root / "runtime").rglob("*.*") if path.suffix in {".py", ".json", ".md"}),
    ]
    wrong, used = [], set()
    for path in published:
        if not path.is_file() or path.suffix == ".pyc":
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found = {*ADDRESS.findall(text)}
        found |= {f"https://github.com/{name}" for name in ACTION.findall(text)}
        wrong += [f"{path.relative_to(root)}: {each}" for each in found - {address}]
        used |= {path.name} if address in found else set()
    assert wrong == [], "change it there, as docs/CONTRIBUTING.md says"
    assert {"pyproject.toml", "ci.md"} <= used
