"""`toolcrib schema`: print the published schema of a kind of document."""

from __future__ import annotations

import click

from toolcrib.cli.value_output import json_text
from toolcrib.core.schemas import KINDS, Kind
from toolcrib.executors import Executors
from toolcrib.loading.editor_schemas import editor_schema


@click.command("schema")
@click.argument("kind", type=click.Choice(KINDS), default="descriptor")
def command(kind: Kind) -> None:
    """Print the JSON Schema of a kind of document.

    Editors complete from it, with the blocks of the installed modes. It accepts all that the loader accepts, and
    refuses as much of the rest as a schema can: `docs/reference/problems.md` says what only the loader finds.
    """
    click.echo(json_text(editor_schema(kind, Executors.installed().blocks())))
