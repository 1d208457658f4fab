"""A call of a tool whose file is not read names the file and the key that excludes it."""

from __future__ import annotations

import pytest

FILES = {
    "toolcrib.yaml": "project: shop\nsources: [tools, pack]\nignore: ['tools/old/*']\n",
    "tools/here.tool.yaml": "name: here\nmock: {result: 1}\n",
    "tools/old/past.tool.yaml": "name: past\nmock: {result: 1}\n",
    "other/away.yaml": "name: near\nmock: {result: 1}\n---\nname: away\nmock: {result: 1}\n",
    "pack/pack.yaml": "name: desk\nversion: 1.0.0\ntools: ['tools/*']\n",
    "pack/tools/in.tool.yaml": "name: inside\nmock: {result: 1}\n",
    "pack/extra/out.tool.yaml": "name: out\nmock: {result: 1}\n",
    "node_modules/x.yaml": "name: module\nmock: {result: 1}\n",
    "deploy/service.yaml": "name: service\nkind: Service\n",
}

PLACES = {
    "away": "other/away.yaml:4, which `sources` (toolcrib.yaml:2) excludes",
    "past": "tools/old/past.tool.yaml:1, which `ignore` of toolcrib.yaml excludes",
    "out": "pack/extra/out.tool.yaml:1, which `tools` (pack/pack.yaml:3) excludes",
}


@pytest.fixture
def shop(write):
    return write(FILES)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("verb", ["call", "show"])
def test_the_file_and_the_key_are_named(shop, toolcrib, verb, name):
    result = toolcrib(verb, name)
    assert result.exit_code == 13
    assert f"    hint: `{name}` is in {PLACES[name]}\n" in result.stderr


def test_the_shell_names_them(shop, toolcrib):
    assert PLACES["out"] in toolcrib("shell", given="out\n").stderr


def test_an_unknown_name_and_a_file_that_is_never_read_get_no_hint(shop, toolcrib):
    for name in ("nothing", "module"):
        assert "hint" not in toolcrib("call", name).stderr


def test_doctor_counts_them(shop, toolcrib, document):
    told = toolcrib("doctor").stdout
    assert "1 file with 2 tools, by `sources` (toolcrib.yaml:2): other/away.yaml" in told
    assert "1 file with 1 tool, by `tools` (pack/pack.yaml:3): pack/extra/out.tool.yaml" in told
    assert "ignored   1 file: tools/old/past.tool.yaml" in told
    names = [tool["name"] for tool in document("doctor", "--json")["excluded"]]
    assert sorted(names) == ["away", "near", "out"]
