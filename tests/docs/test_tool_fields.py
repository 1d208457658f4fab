"""The page of the fields of a tool: every field has a place and an effect, and the test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PAGE = (ROOT / "docs" / "reference" / "tool-fields.md").read_text(encoding="utf-8")

METADATA = {
    *("Id", "Name", "Description", "Version", "Author", "Category", "Tags", "RequiredCapabilities"),
    *("RequiredPermissions", "Parameters", "Examples", "HelpUrl", "IsDeprecated", "IsExperimental"),
    *("RequiresConfirmation", "EstimatedExecutionTimeMs", "MaxInputSizeBytes", "OutputSchema"),
    *("SupportedPlatforms", "MinimumDotNetVersion", "Dependencies", "AdditionalMetadata"),
}
PARAMETER = {
    *("Name", "Description", "Type", "Required", "DefaultValue", "AllowedValues", "MinValue", "MaxValue"),
    *("MinLength", "MaxLength", "Pattern", "Format", "Examples", "Schema", "ItemType", "Metadata"),
}

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]


def test_every_field_is_on_the_page():
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}
    assert named >= METADATA | PARAMETER
    assert all(cell for row in ROWS for cell in row)


@pytest.mark.parametrize("reference", sorted({row[-1].strip("`") for row in ROWS}))
def test_the_test_of_a_field_exists(reference):
    file, _, name = reference.partition("::")
    source = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), reference
