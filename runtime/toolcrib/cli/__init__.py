"""The command line: one module per command, which only translates between a terminal and the runtime.

It imports any other room; no room imports it.
"""

from toolcrib.cli.entry import main

__all__ = ["main"]
