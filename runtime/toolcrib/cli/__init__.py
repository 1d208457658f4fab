"""The command line: one file a verb; each only translates between a terminal and the runtime."""

from toolcrib.cli.entry import main

__all__ = ["main"]
