"""`toolcrib import openapi`: the operations of an OpenAPI description as descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import click

from toolcrib.cli.imported_files import ImportOptions, import_options, write_import
from toolcrib.cli.openapi_source import DescriptionFiles
from toolcrib.core.errors import ConfigurationError
from toolcrib.formats.imported_tools import ImportedTools, ImportRemark
from toolcrib.formats.imports.sources import other_kind
from toolcrib.formats.openapi_import import OpenApiOptions, Refused, tools_of_openapi, version_of
from toolcrib.http.messages import DEFAULT_PORTS


@click.command("openapi")
@click.argument("source", metavar="SOURCE")
@click.option(
    "--server", default="", metavar="URL", help="Address of the API, instead of that of the description."
)
@click.option(
    "--allow-ref",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Fetch files of this host that the description refers to. Can be repeated.",
)
@import_options
@click.pass_context
def import_openapi(
    ctx: click.Context, *, source: str, server: str, hosts: Sequence[str], options: ImportOptions
) -> None:
    """Write one descriptor file for each operation of an OpenAPI description.

    SOURCE is a file or a URL: JSON or YAML, Swagger 2.0 or OpenAPI 3.0 to 3.2. `--only` and `--except` also match tags, paths
    and operation ids. References to other files are read within the folder of SOURCE. Exits with 1 if an operation got no file.
    """
    if server and urlsplit(server).scheme not in DEFAULT_PORTS and not server.startswith("${"):
        raise ConfigurationError(f"--server: `{server}` is not an address", hint="write `https://host/path`")
    files = DescriptionFiles(source, hosts)
    main = files.main()
    try:
        known = version_of(main.value)
    except Refused as refused:
        raise ConfigurationError(f"{source}: {refused.message}", code="other_source_kind") from None
    if not known and main.other:
        message = f"{source} is not an OpenAPI description; {main.other}"
        raise ConfigurationError(message, code="other_source_kind")
    if not known:
        raise other_kind(source, main.value, "an OpenAPI description")
    wanted = OpenApiOptions(options.only, options.skipped, server, main.url, main.file, files.read)
    imported = tools_of_openapi(main.value, wanted)
    notes = [ImportRemark("repaired", "", "", note) for note in main.notes]
    write_import(
        ctx,
        imported._replace(remarks=[*notes, *imported.remarks]),
        options._replace(only=(), skipped=()),
        kind="openapi",
        source=source,
        remarks=_unmatched(imported, options),
    )


def _unmatched(imported: ImportedTools, options: ImportOptions) -> list[str]:
    """A remark if the globs select nothing."""
    if imported.tools or imported.refused or not imported.skipped:
        return []
    globs = ", ".join(f"`{glob}`" for glob in options.only)
    return [f"no operation matches {globs or 'what remains'}; the description has {len(imported.skipped):,}"]
