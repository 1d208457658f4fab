"""What the modules on the way of a mocked call do not import: each would cost every start its milliseconds."""

import subprocess
import sys

import pytest

SLOW = [
    "click",
    "importlib.metadata",
    "importlib.resources",
    "jinja2",
    "statistics",
    "toolcrib.schema.generation",
    "toolcrib.loading.sources",
    "toolcrib.expressions.matchers",
    "yaml",
]

LISTED = "import sys, {module}\nprint(*(name for name in {slow!r} if name in sys.modules))"


@pytest.mark.parametrize("module", ["toolcrib.expressions", "toolcrib.executors.mock"])
def test_nothing_slow_is_imported(module):
    code = LISTED.format(module=module, slow=SLOW)
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.split() == []
