"""An agent cannot be driven without the extra `acp`; the error names it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import asyncio, sys
sys.modules["acp"] = None
from toolcrib import ConfigurationError
from toolcrib.acp import Agent

async def main():
    try:
        await Agent(["true"]).__aenter__()
    except ConfigurationError as error:
        print(error.code, error.hint)

asyncio.run(main())
"""


def test_the_error_names_the_extra():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "missing_extra pip install 'toolcrib[acp]'\n"
