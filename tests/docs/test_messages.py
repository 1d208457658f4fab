"""The inventory of messages: complete, true, and in plain English."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.scripts import script

ROOT = Path(__file__).parents[2]


MESSAGES = script("messages")

UPDATE = "see docs/messages.py for how to update the inventory"


def test_every_template_of_the_inventory_is_in_the_source():
    gone = {entry.template for entry in MESSAGES.inventory()} - {""} - MESSAGES.templates()
    assert not gone, UPDATE


def test_every_example_comes_from_its_template():
    wrong = [
        entry
        for entry in MESSAGES.inventory()
        if entry.template and not MESSAGES.pattern_of(entry.template).fullmatch(entry.example)
    ]
    assert not wrong


def test_an_update_keeps_what_was_not_recorded_while_its_text_is_in_the_source(tmp_path):
    file, folder = tmp_path / "inventory.json", tmp_path / "recorded"
    folder.mkdir()
    before = [
        each for each in MESSAGES.inventory()[::200] if each.template == MESSAGES.template_for(each.example)
    ]
    kind, code, template, example = moved = next(each for each in before if each.kind == "problem")
    unfit = moved._replace(template="another text")
    gone = moved._replace(code="gone", example="is not written")
    file.write_text(json.dumps([unfit, gone, *before]), encoding="utf-8")
    (folder / "1.json").write_text(json.dumps([[kind, "new", example]]), encoding="utf-8")
    assert MESSAGES.update(file, folder) == [gone]
    new = (kind, "new", template, example)
    assert {*MESSAGES.inventory(file)} == {(kind, code, template, example), new, *before}


TRANSLATED = re.compile(
    r"""(?<!there\ )\bis\ no\ (?!longer|more)[a-z`]   # "is no key here": unknown key
    |\bare\ no\ (?!longer|more)[a-z`]
    |(?<!there\ )\bis\ none\b
    |\b(is|are|was|were)\ (told|said|had)\b
    |\bstands?\b|\blies\b
    |\b(wholly|whoever|thereof|nobody|somebody)\b
    |\bin\ force\b
    |\bcan't\b|\bcouldn't\b|\bdoesn't\b|\bisn't\b|\bwon't\b|\bdon't\b""",
    re.VERBOSE,
)
"""Wordings that a native reader stumbles over, and contractions."""


@pytest.mark.parametrize("kind", ["problem", "outcome", "error", "command line"])
def test_messages_are_in_plain_english(kind):
    found = {
        entry.template
        for entry in MESSAGES.inventory()
        if entry.kind == kind and TRANSLATED.search(re.sub(r"`[^`]*`|\{[^}]*\}", "`x`", entry.template))
    }
    assert found == set()


@pytest.mark.parametrize("kind", ["problem", "outcome", "error", "command line"])
def test_a_message_of_one_sentence_has_no_full_stop(kind):
    found = {
        entry.template
        for entry in MESSAGES.inventory()
        if entry.kind == kind and re.search(r"(?<!\.)\.$", entry.template) and ". " not in entry.template
    }
    assert found == set()
