"""`toolcrib schema`: print the published schema of a kind of document."""

from __future__ import annotations

import click

from toolcrib.cli.printing import json_text
from toolcrib.executors import Executors
from toolcrib.schemas import KINDS, Kind, with_blocks


@click.command("schema")
@click.argument("kind", type=click.Choice(KINDS), default="descriptor")
def command(kind: Kind) -> None:
    """Print the JSON Schema of a kind of document.

    It is what the loader checks against, with the blocks of the installed modes; editors complete from it.
    """
    click.echo(json_text(with_blocks(kind, Executors.installed().blocks())))
