"""The command line: one module per verb, which only translates between a terminal and the runtime.

It may import every other room.
"""

from toolcrib.cli.entry import main

__all__ = ["main"]
