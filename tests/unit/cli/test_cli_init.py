"""`toolcrib init` writes files that work."""

from __future__ import annotations

import json

from toolcrib.cli import exit_codes


def test_what_it_writes_is_valid_listed_callable_and_passes(write, toolcrib, document):
    write({})
    assert toolcrib("init").exit_code == 0
    assert toolcrib("validate", "--strict").stdout == "3 tools, 1 pack, 1 scenario: no problems\n"
    assert [tool["name"] for tool in document("list", "--json")["tools"]] == [
        "cancel_order",
        "get_forecast",
        "get_order",
    ]
    assert document("call", "get_forecast", "city=Oslo", "--json")["result"]["city"] == "Oslo"
    assert document("run", "--json")["passed"] == 2
    assert toolcrib("lint").stdout == "3 tools: no findings\n"


def test_every_file_names_a_schema_that_is_there(write, toolcrib):
    folder = write({})
    toolcrib("init")
    documents = [*folder.glob("*.yaml"), *folder.glob("descriptors/*.yaml"), *folder.glob("packs/**/*.yaml")]
    assert len(documents) == 6
    for path in documents:
        first = path.read_text(encoding="utf-8").splitlines()[0]
        lead, _, reference = first.partition("=")
        assert lead == "# yaml-language-server: $schema"
        assert json.loads((path.parent / reference).read_text(encoding="utf-8"))["title"].startswith(
            "toolcrib"
        )


def test_it_names_the_next_commands_and_where_to_go(write, toolcrib):
    write({})
    shown = toolcrib("init", "shop").stdout
    assert "wrote shop/descriptors/get_forecast.tool.yaml" in shown
    assert shown.endswith(
        "Next:\n  cd shop\n  toolcrib list\n  toolcrib call get_forecast city=Oslo\n  toolcrib run\n  toolcrib validate\n"
        "  toolcrib doctor\n"
    )


def test_it_overwrites_nothing_unless_told_to(write, toolcrib):
    folder = write({"packs/first-pack/pack.yaml": "mine"})
    refused = toolcrib("init")
    assert refused.exit_code == exit_codes.PROBLEMS
    assert "packs/first-pack/pack.yaml exists" in refused.stderr
    assert "--force" in refused.stderr
    assert not (folder / "descriptors").exists()
    assert toolcrib("init", "--force").exit_code == 0
    assert (folder / "packs/first-pack/pack.yaml").read_text(encoding="utf-8") != "mine"


def test_a_folder_that_can_not_be_written_is_named(write, toolcrib):
    write({"descriptors": "a file where a folder should be"})
    result = toolcrib("init")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "descriptors/get_forecast.tool.yaml cannot be written" in result.stderr


def test_its_project_is_in_order_under_each_profile(write, toolcrib, document):
    write({})
    toolcrib("init")
    told = document("doctor", "--json")
    assert told["healthy"] is True
    assert told["findings"] == []
    assert told["profile"]["name"] == "dev"
    assert document("doctor", "--profile", "ci", "--json")["healthy"] is True


def test_it_adds_no_second_project_file(write, toolcrib):
    folder = write({"toolcrib.yml": "project: mine\n"})
    refused = toolcrib("init")
    assert refused.exit_code == exit_codes.PROBLEMS
    assert "toolcrib.yml exists" in refused.stderr
    assert not (folder / "toolcrib.yaml").exists()
