"""Whatever documents hold, no command lets it steer a terminal.

They set the title of the terminal (OSC 0): click itself leaves out what sets colours where nothing is a terminal.
"""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

from sampling import sample

STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)

FILES = {
    "toolcrib.yaml": """
        project: p
        description: "d\\e]0;x\\a\\u202e"
        sources: [tools]
        toolsets: {main: {description: "\\e]0;x\\aset\\u202e", tools: ["*"]}}
    """,
    "tools/look.tool.yaml": """
        name: look
        title: "Look\\u2066"
        description: "Looks\\u2067. More"
        category: "c\\u2066"
        version: "1\\u2066"
        author: "a\\e]0;x\\a"
        help_url: "https://x.example/\\u2066"
        deprecated: "no\\e]0;x\\a"
        metadata: {m: "\\e]0;x\\a", "k\\e]0;x\\a": 1}
        labels: {l: "\\e]0;x\\a"}
        input_schema:
          type: object
          properties: {q: {type: string, description: "x\\u2066", default: "\\u2066d"}}
        examples: [{args: {q: "\\e]0;x\\a"}, result: "\\e]0;bold"}]
        mock:
          rules:
            - {name: "r", when: {args: {q: "\\e]0;x\\a"}}, reply: {result: "\\e]0;bold\\u202e"}}
            - {when: {args: {q: err}}, reply: {error: {message: "\\e]0;x\\abad\\u202e", code: x}}}
            - {reply: {result: {"k\\e]0;x\\a": "\\e]0;bold\\a\\u202e"}}}
    """,
    "tools/s.scenario.yaml": """
        scenario: s
        description: "\\e]0;x\\ad"
        tags: ["t\\e]0;x\\a"]
        steps:
          - {call: look, args: {q: "\\e]0;x\\a"}, expect: {result: "\\e]0;other\\u202e"}}
          - {call: look, args: {q: err}, expect: {outcome: ok}}
    """,
    "bad/bad.tool.yaml": """
        name: bad
        description: "x\\e]0;x\\a\\u202e"
        "\\e]0;x\\akey": 1
        input_schema: {type: object, properties: {"\\e]0;x\\a": {type: "\\e]0;x\\a"}}, required: ["\\e[3"]}
        mock: {result: "{{ args.nope }}\\e]0;x\\a"}
    """,
    "bad/pack.yaml": """
        name: "p\\e]0;x\\a"
        version: "\\u202e"
        "\\e]0;x\\a": 1
        prompts: {"\\e]0;x\\a": {template: "\\e]0;x\\a"}}
    """,
}

COMMANDS = [
    "list", "list --json", "show look", "show look --json", "validate", "validate --strict", "validate --json", "validate bad",
    "validate bad --json", "run", "run --json", "run --verbose", "search looks", "search looks --json", "doctor", "doctor --json",
    "call look q=x", "call look q=err", "call look q=x --json", "call look q=x --dry-run", "call look q=x --verbose",
    "call look \x1b[31m=x", "call look q:=\x1b", "cost", "trust", "show \x1b[31m", "call \x1b[31m", "run \x1b[31m", "search \x1b[31m",
    "validate \x1b[31m", "list --\x1b[31m", "call bad --sources bad", "export openai",
]  # fmt: skip


@pytest.mark.parametrize("words", sample(COMMANDS, one_in=3))
def test_nothing_of_a_document_steers_the_terminal(words, write, toolcrib):
    write({name: dedent(text) for name, text in FILES.items()})
    done = toolcrib(*words.split(" "))
    said = done.stdout + done.stderr
    assert said
    assert STEERING.findall(said) == []
