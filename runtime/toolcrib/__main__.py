"""`python -m toolcrib` is `toolcrib`."""

from toolcrib.cli import main

main()
