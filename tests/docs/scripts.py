"""The scripts in `docs/`, which are no package: `script("generate")` is the module `docs/generate.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def script(name: str) -> ModuleType:
    # Under another name than its own: `site` is a module of the standard library.
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
