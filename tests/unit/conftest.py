"""What tests of loading share."""

from __future__ import annotations

import pytest


@pytest.fixture
def folder(tmp_path):
    """Writes files below an empty folder: name -> text."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return tmp_path

    return write
