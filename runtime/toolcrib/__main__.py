"""`python -m toolcrib` is `toolcrib`."""

import os
import sys

# `-m` lets Python look for modules in the working directory first, which may be anybody's.
try:
    here = os.getcwd()
except FileNotFoundError:
    here = ""
if not sys.flags.safe_path and sys.path[:1] == [here]:
    del sys.path[0]

from toolcrib.cli import main

main()
