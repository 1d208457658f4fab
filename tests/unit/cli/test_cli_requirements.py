"""`list`, `show` and `doctor` say why a tool cannot run here."""

from __future__ import annotations

import json

TOOL = """
name: a
live: {url: 'https://api.example.com/v1'}
platforms: [windows]
estimate: {duration: 2s, cost: 0.5, output: 1KiB}
"""


def test_a_tool_that_cannot_run_here_is_shown_with_the_reason(tmp_path, monkeypatch, toolcrib):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "a.yaml").write_text(TOOL)
    # Twice: the second time from the index.
    for _ in range(2):
        listed = json.loads(toolcrib("list", "--json").stdout)["tools"][0]
        assert "runs on windows only" in listed["unavailable"]
        assert (listed["capabilities"], listed["requires"]) == (["network"], ["platform windows"])
        assert "unavailable" in toolcrib("list").stdout
    shown = toolcrib("show", "a").stdout
    assert "2s, $0.5, 1KiB" in shown
    assert "runs on windows only" in shown
    doctor = toolcrib("doctor", "a")
    assert doctor.exit_code == 1
    assert "runs on windows only" in doctor.stdout
    assert all(key in doctor.stdout for key in ("capabilities", "its blocks", "platforms", "estimate"))


def test_tools_are_listed_by_capability(tmp_path, monkeypatch, toolcrib):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "a.yaml").write_text(TOOL)
    (tmp_path / "descriptors" / "b.yaml").write_text("name: plain\nmock: {result: 1}\n")
    assert "plain" not in toolcrib("list", "--capability", "network").stdout
    assert "plain" in toolcrib("list", "--capability", "!network").stdout
    assert "no tool has the capability" in toolcrib("list", "--capability", "process").stderr
