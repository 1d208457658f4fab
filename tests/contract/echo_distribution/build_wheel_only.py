"""The smallest build backend (PEP 517): it puts the one module and its metadata into a wheel."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

WHEEL = "Wheel-Version: 1.0\nGenerator: build_wheel_only\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Write the wheel into a folder; returns its file name."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    files = {
        "toolcrib_echo.py": (HERE / "toolcrib_echo.py").read_text(encoding="utf-8"),
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        f"{stem}.dist-info/WHEEL": WHEEL,
        f"{stem}.dist-info/entry_points.txt": "".join(
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
            for group, entries in project["entry-points"].items()
        ),
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{stem}.dist-info/RECORD"])
    with zipfile.ZipFile(Path(wheel_directory, f"{stem}-py3-none-any.whl"), "w") as wheel:
        for name, text in {**files, f"{stem}.dist-info/RECORD": record}.items():
            wheel.writestr(name, text)
    return f"{stem}-py3-none-any.whl"
