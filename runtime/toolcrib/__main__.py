"""Run the command `toolcrib` with `python -m toolcrib`."""

import os
import sys

# `python -m` searches the working directory first. An untrusted project could shadow a module of the standard
# library there, and its code would run before any question of trust.
try:
    here = os.getcwd()
except FileNotFoundError:
    here = ""
if not sys.flags.safe_path and sys.path[:1] == [here]:
    del sys.path[0]

from toolcrib.cli import main

main()
