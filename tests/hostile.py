"""Inputs that mean harm, and the worker that tries them.

Run as a script it is the worker: it takes the name of a case a line, reads the case's folder and calls
its tool, and answers with one line of JSON.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from toolcrib.core.errors import DocumentError
from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor

SECRET = "canary-0f9e8d7c"
CANARY_PORT = "CANARY_PORT"
PLAIN = b"name: hostile\nmock: {result: 1}\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A hostile input and what must come of it.

    Attributes:
        id: Its number, and which of several.
        files: Name -> content; `@PORT@` becomes the port of a server that nobody may call.
        links: Name -> where the symbolic link points.
        codes: Codes of the problems, each once; a notice is written with `~`, a warning with `?`.
        call: Name and arguments of a call; a function makes those that are not worth writing down.
        outcome: How the call must end.
        value: What the call must answer.
        says: Texts that the problems or the answer hold.
        silent: Texts that neither holds.
    """

    id: str
    files: Mapping[str, str | bytes | Callable[[], str | bytes]]
    links: Mapping[str, str] | None = None
    codes: tuple[str, ...] = ()
    call: tuple[str, Any] | None = None
    outcome: str = ""
    value: Any = None
    says: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


def text(
    case: str,
    body: str | bytes | Callable[[], str | bytes],
    *codes: str,
    name: str = "n.tool.yaml",
    **more: Any,
) -> Case:
    """A case of one file that is refused or noticed."""
    return Case(id=case, files={name: body}, codes=codes, **more)


def schema(case: str, key: str, body: str, *codes: str, **more: Any) -> Case:
    """A case of one schema."""
    return text(case, f"name: hostile\n{key}: {body}\nmock: {{result: 1}}\n", *codes, **more)


def mock(case: str, block: str, *codes: str, inputs: str = "{}", output: str = "{}", **more: Any) -> Case:
    """A case of one mock block, written as flow YAML after `mock:`."""
    body = f"name: hostile\ninput_schema: {inputs}\noutput_schema: {output}\nmock: {block}\n"
    return text(case, body, *codes, **more)


def result(case: str, expression: str, *codes: str, **more: Any) -> Case:
    """A case of one expression in a mock's result."""
    return mock(case, f"{{result: {json.dumps(expression)}}}", *codes, **more)


def template(case: str, body: str, *codes: str, **more: Any) -> Case:
    """A case of one template in a mock."""
    return mock(case, f"{{template: {json.dumps(body)}}}", *codes, **more)


def zipped(*entries: tuple[str | ZipInfo, bytes]) -> bytes:
    """An archive with a pack and these entries."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in [("pack.yaml", b"name: hostile\nversion: 1.0.0\n"), *entries]:
            archive.writestr(name, content)
    return buffer.getvalue()


def linked(name: str) -> ZipInfo:
    """The entry of a symbolic link."""
    entry = ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def shared() -> bytes:
    """An archive in which two entries have the same bytes for their content."""
    data = bytearray(zipped(("a", bytes(9)), ("b", bytes(9))))
    lines = [match.start() for match in re.finditer(b"PK\x01\x02", data)]
    data[lines[2] + 42 : lines[2] + 46] = data[lines[1] + 42 : lines[1] + 46]
    return bytes(data)


def zeros() -> bytes:
    """An archive of a few hundred KiB with 300 MiB in it."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as bomb, bomb.open("x.yaml", "w") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    return buffer.getvalue()


def archive(case: str, body: bytes | Callable[[], bytes], *codes: str, **more: Any) -> Case:
    """A case of one archive, which is refused whole."""
    return text(case, body, *codes, name="n.zip", **more)


def called(arguments: Any, outcome: str, value: Any = None) -> dict[str, Any]:
    """What a call of the hostile tool must answer."""
    return {"call": ("hostile", arguments), "outcome": outcome, "value": value}


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))

TREE = "{type: object, properties: {child: {$ref: '#'}}, additionalProperties: false}"

STAYS_TEXT = """
name: hostile
input_schema:
  additionalProperties: false
  properties:
    enabled: {enum: [no, yes], default: no}
    version: {type: string, const: 1.10, default: 1.10}
    code: {const: 0777, default: 0777}
    at: {type: string, default: 22:22}
    day: {enum: [2024-01-01], default: 2024-01-01}
mock: {result: "{{ args }}"}
"""

SECRETIVE = "{type: object, required: [user], properties: {user: {type: string}, password: {type: string}}, additionalProperties: false}"

QUOTES = 'say "hi"\n\\ and {{ 7*7 }}'


def nested(depth: int) -> Any:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"child": value}
    return value


CASES = [
    text("D01", "a: &x 1\nb: *x\n", "alias_refused"),
    text("D02", BOMB, "alias_refused"),
    text("D03", "[" * 30_000, "too_deep"),
    text("D03-json", "[" * 30_000, "too_deep", name="n.tool.json"),
    text("D03-flow", "a: " + "{a: " * 30_000, "too_deep"),
    text("D04", "name: a\nmock: {result: 1}\nname: b\n", "duplicate_key", says=(":3:1:", "lines 1 and 3")),
    text(
        "D04-json",
        '{"name": "a",\n"name": "b"}',
        "duplicate_key",
        name="n.tool.json",
        says=(":2:1:", "lines 1 and 2"),
    ),
    schema("D05", "input_schema", "{properties: {a: {}, b: {}, a: {}}}", "duplicate_key"),
    text("D06", "name: !!python/object/apply:os.system ['touch /tmp/toolcrib-hostile']\n", "tag_refused"),
    text("D06-tag", "name: !local x\nmock: {result: 1}\n", "tag_refused"),
    Case(
        id="D07",
        files={"n.tool.yaml": STAYS_TEXT},
        **called(
            {}, "ok", {"enabled": "no", "version": "1.10", "code": "0777", "at": "22:22", "day": "2024-01-01"}
        ),
    ),
    text("D08", b"name: caf\xe9\n", "invalid_utf8"),
    text("D09", b"name: a\x00b\n", "control_character"),
    text("D09-bell", b"name: 'a\x07b'\n", "control_character"),
    text(
        "D09-escaped", 'name: hostile\nmock: {result_file: "a\\0b"}\n', "file_unreadable", "?hidden_character"
    ),
    text("D10-empty", "", "unrecognised_file"),
    text("D10-comments", "# a\n# b\n", "unrecognised_file"),
    text("D10-list", "- a\n- b\n", "unrecognised_file"),
    text("D10-string", "just a text\n", "unrecognised_file"),
    text("D10-null", "null\n", "unrecognised_file"),
    text("D10-empty-notice", "", "~unrecognised_file", name="n.yaml"),
    text("D10-comments-notice", "# a\n", "~unrecognised_file", name="n.yaml"),
    text("D10-list-notice", "[1, 2]", "~unrecognised_file", name="n.json"),
    text("D10-string-notice", '"text"', "~unrecognised_file", name="n.json"),
    text("D10-null-notice", "null\n", "~unrecognised_file", name="n.yaml"),
    text(
        "D10-descriptors",
        '[{"name": "hostile", "mock": {"result": 1}}, {"name": "other", "mock": {"result": 2}}]',
        name="n.tool.json",
        **called({}, "ok", 1),
    ),
    text("D11", lambda: b"# " + b"x" * 20_000_000, "too_large"),
    text("D11-json", lambda: '["' + "x" * 20_000_000 + '"]', "too_large", name="n.tool.json"),
    text("D12", "name: a\nmock:\n\tresult: 1\n", "invalid_yaml", says=(":3:1:",)),
    text("D13-nan", '{"name": "a", "mock": {"result": NaN}}', "non_finite_number", name="n.tool.json"),
    text(
        "D13-infinity",
        '{"name": "a", "mock": {"result": -Infinity}}',
        "non_finite_number",
        name="n.tool.json",
    ),
    text("D13-overflow", '{"name": "a", "mock": {"result": 1e999}}', "non_finite_number", name="n.tool.json"),
    text(
        "D14", '{"name": "a", "mock": {"result": ' + "9" * 5000 + "}}", "number_too_long", name="n.tool.json"
    ),
    text("D14-yaml", "name: a\nmock: {result: " + "9" * 5000 + "}\n", "number_too_long"),
    text(
        "D15",
        "name: a\ndescripton: b\nmock: {result: 1}\n",
        "unknown_key",
        says=("did you mean `description`?",),
    ),
    Case(id="D16", files={}, links={"n.tool.yaml": "gone.tool.yaml"}, codes=("~file_vanished",)),
    Case(
        id="D17",
        files={
            "n1.tool.yaml": "name: hostile\nmock: {result: first}\n",
            "n2.tool.yaml": "name: hostile\nmock: {result: second}\n",
        },
        codes=("duplicate_tool",),
        says=("n1.tool.yaml:1", "n2.tool.yaml:1"),
        **called({}, "ok", "first"),
    ),
    text("D18-slash", "name: ../x\nmock: {result: 1}\n", "wrong_form"),
    text("D18-blank", "name: a b\nmock: {result: 1}\n", "wrong_form"),
    text("D19", f"name: {'a' * 300}\nmock: {{result: 1}}\n", "wrong_form"),
    text(
        "D20",
        "name: Hostile\nmock: {result: 1}\n---\nname: hostile\nmock: {result: 2}\n",
        **called({}, "ok", 2),
    ),
    text("D21", "name: hostile\ndescription: ''\nmock: {result: 1}\n", **called({}, "ok", 1)),
    text(
        "D22",
        'name: hostile\ndescription: "\\e[31mred\\u202e"\nmock: {result: 1}\n',
        "?hidden_character",
        **called({}, "ok", 1),
    ),
    text("D22-raw", b"name: hostile\ndescription: \x1b[31mred\nmock: {result: 1}\n", "control_character"),
    schema("D25", "input_schema", "{properties: {a: {type: strng}}}", "invalid_schema"),
    schema("D26", "input_schema", "{properties: {a: {pattern: '('}}}", "bad_pattern"),
    schema(
        "D27",
        "input_schema",
        "{properties: {a: {type: string, pattern: '^(a+)+$'}}}",
        **called({"a": "a" * 30 + "!"}, "invalid_arguments"),
    ),
    schema(
        "D27-look-around",
        "input_schema",
        "{properties: {a: {type: string, pattern: '^(?=a)(a+)+$'}}}",
        **called({"a": "a" * 30 + "!"}, "invalid_arguments"),
    ),
    schema("D28", "input_schema", "{$ref: 'http://127.0.0.1:@PORT@/x.json'}", "remote_ref"),
    schema("D29", "output_schema", "{$ref: 'file:///etc/passwd'}", "remote_ref"),
    schema("D30", "input_schema", '{"$ref": "#"}', "endless_ref"),
    schema("D31", "input_schema", "{$ref: '#/$defs/x'}", "dangling_ref"),
    schema("D32", "input_schema", TREE, **called(lambda: nested(50), "ok", 1)),
    schema("D33", "input_schema", TREE, **called(lambda: nested(5000), "invalid_arguments")),
    schema(
        "D34",
        "input_schema",
        "{properties: {a: {}}, additionalProperties: false}",
        says=("`extra`",),
        silent=("hidden away",),
        **called({"a": "hidden away", "extra": "hidden away"}, "invalid_arguments"),
    ),
    schema(
        "D35",
        "input_schema",
        SECRETIVE,
        says=("/user",),
        silent=(SECRET,),
        **called({"password": SECRET}, "invalid_arguments"),
    ),
    schema(
        "D36",
        "input_schema",
        "{properties: {n: {type: integer}}}",
        **called({"n": True}, "invalid_arguments"),
    ),
    schema("D37", "input_schema", "{properties: {n: {type: integer}}}", **called({"n": 1.0}, "ok", 1)),
    schema(
        "D38",
        "input_schema",
        "{properties: {n: {type: array, items: {type: integer}}}}",
        says=("/n/0", "/n/5"),
        silent=("/n/20",),
        **called({"n": ["x"] * 100}, "invalid_arguments"),
    ),
    result(
        "D39",
        "{{ args.x }}",
        inputs="{properties: {x: {}}}",
        output="{type: integer}",
        **called({"x": "passed on as good"}, "invalid_result"),
    ),
    text("D40", "name: hostile\nmock: {result: 1}\n", **called({"x": 1}, "invalid_arguments")),
    text("D40-empty", "name: hostile\nmock: {result: 1}\n", **called({}, "ok", 1)),
    result("D41", "{{ ''.__class__ }}", "expression_failed"),
    result("D41-argument", "{{ args.x.__class__ }}", **called({"x": "a"}, "internal")),
    result("D42", "{{ ''|attr('__class__') }}", "unknown_function"),
    result("D43", "{{ '{0.__class__}'.format(1) }}", "expression_not_allowed"),
    template("D44", "{% for i in range(10**9) %}x{% endfor %}", "expression_failed"),
    template(
        "D45",
        "{% for a in args.xs %}{% for b in args.xs %}x{% endfor %}{% endfor %}",
        **called(lambda: {"xs": [0] * 99_999}, "internal"),
    ),
    result("D46", "{{ 'a'*10**9 }}", "expression_failed"),
    result("D46-argument", "{{ 'a' * args.n }}", **called({"n": 10**9}, "internal")),
    result("D47", "{{ 10**(10**9) }}", "expression_failed"),
    result("D47-argument", "{{ args.n ** args.n }}", **called({"n": 10**9}, "internal")),
    result("D48", "{{ nobody }}", "unknown_name", says=("`nobody`",)),
    template("D48-template", "{{ nobody }}", "unknown_name", says=("`nobody`",)),
    result("D49", "{{ args.x }}", **called({"x": "{{ 7*7 }}"}, "ok", "{{ 7*7 }}")),
    template(
        "D49-template",
        "got {{ args.x }}",
        **called({"x": "{{ 7*7 }}{% if %}"}, "ok", "got {{ 7*7 }}{% if %}"),
    ),
    mock("D50", '{result: {said: "{{ args.x }}"}}', **called({"x": QUOTES}, "ok", {"said": QUOTES})),
    template(
        "D50-template", '{"said": {{ args.x | tojson }}}', **called({"x": QUOTES}, "ok", {"said": QUOTES})
    ),
    template("D51", "one\n{% if args.x %}two", "expression_syntax", says=("line 2",)),
    result("D51-expression", "{{ args.x", "expression_syntax"),
    template("D52-include", "{% include '/etc/passwd' %}", "expression_not_allowed"),
    template("D52-import", "{% import 'os' as os %}", "expression_not_allowed"),
    template("D52-extends", "{% extends 'base' %}", "expression_not_allowed"),
    result("D53", "{{ lipsum(n=100000) }}", "unknown_function"),
    template("D53-template", "{{ lipsum(n=100000) }}", "unknown_function"),
    result("D54", "{{ env.TOOLCRIB_CANARY }}", "unknown_name"),
    result("D54-secrets", "{{ secrets.TOOLCRIB_CANARY }}", "unknown_name"),
    result("D54-variable", "${TOOLCRIB_CANARY}", "variable_not_allowed"),
    archive("D91", lambda: zipped(("../x.yaml", PLAIN)), "archive_unsafe_name", says=("`../x.yaml`",)),
    archive("D91-absolute", lambda: zipped(("/tmp/x.yaml", PLAIN)), "archive_unsafe_name"),
    archive("D91-backslash", lambda: zipped(("..\\x.yaml", PLAIN)), "archive_unsafe_name"),
    archive("D91-control", lambda: zipped(("\x1b[31m.yaml", PLAIN)), "archive_unsafe_name", silent=("\x1b",)),
    archive("D91-length", lambda: zipped(("a" * 300, PLAIN)), "archive_unsafe_name"),
    archive("D91-depth", lambda: zipped(("d/" * 1500 + "x.yaml", PLAIN)), "archive_unsafe_name"),
    archive("D91-twice", lambda: zipped(("x.yaml", PLAIN), ("x.yaml", b"")), "archive_duplicate_name"),
    archive("D91-case", lambda: zipped(("x.yaml", PLAIN), ("X.yaml", b"")), "archive_duplicate_name"),
    archive("D91-folder", lambda: zipped(("x", PLAIN), ("x/y.yaml", b"")), "archive_duplicate_name"),
    archive("D92", lambda: zipped((linked("x.yaml"), b"/etc/passwd")), "archive_not_a_file"),
    archive("D93", zeros, "archive_too_large"),
    archive("D93-many", lambda: zipped(*((f"x{n}", b"") for n in range(5000))), "archive_too_large"),
    archive("D93-shared", shared, "archive_damaged", "archive_overlap"),
    archive("D93-before", lambda: b"#!" + zipped(), "archive_surplus"),
    archive("D93-behind", lambda: zipped() + b"x", "archive_damaged"),
    archive("D93-half", lambda: zipped(("x.yaml", PLAIN * 9))[:-40], "archive_damaged"),
    archive("D93-empty", b"", "archive_damaged"),
    archive("D93-none", b"not at all", "archive_damaged"),
]

BY_ID = {case.id: case for case in CASES}

GOOD = {
    "a.tool.yaml": "name: good_a\ninput_schema: {required: [n], properties: {n: {type: integer}}}\nmock: {result: {n: '{{ args.n + 1 }}'}}\n",
    "z.tool.yaml": "name: good_z\ninput_schema: {required: [n], properties: {n: {type: integer}}}\nmock: {result: {n: '{{ args.n + 1 }}'}}\n",
}


def lay_out(case: Case, folder: Path) -> None:
    """Write the files of a case and the good tools into a folder."""
    for name, content in {**GOOD, **case.files}.items():
        body = content() if callable(content) else content
        raw = body.encode() if isinstance(body, str) else body
        (folder / name).write_bytes(raw.replace(b"@PORT@", os.environ.get(CANARY_PORT, "9").encode()))
    for name, target in (case.links or {}).items():
        (folder / name).symlink_to(target)


def told(problem: Any) -> str:
    """The code of a problem, marked with how grave it is."""
    return {"error": "", "warning": "?", "notice": "~"}[problem.severity] + problem.code


async def tried(case: Case, folder: Path) -> dict[str, Any]:
    """Read the folder, call the hostile tool, then the good ones."""
    executors = Executors({"mock": MockExecutor})
    started = time.perf_counter()
    async with Runtime.open(folder, executors=executors) as runtime:
        answer: dict[str, Any] = {
            "load": time.perf_counter() - started,
            "codes": sorted({told(problem) for problem in runtime.problems}),
            "text": "\n".join(str(problem) for problem in runtime.problems),
        }
        if case.call is not None:
            name, arguments = case.call
            arguments = arguments() if callable(arguments) else arguments
            started = time.perf_counter()
            got = (await runtime.call(name, arguments)).as_json()
            answer |= {"call": time.perf_counter() - started, "answer": got}
        answer["good"] = [(await runtime.call(f"good_{letter}", {"n": 1})).value for letter in "az"]
    return answer


def refused_when_strict(folder: Path) -> bool:
    """Whether the folder is refused as a whole under `strict`."""
    try:
        Runtime.open(folder, strict=True, executors=Executors({"mock": MockExecutor}))
    except DocumentError:
        return True
    return False


def serve() -> None:
    """The worker: the name of a case a line in, what came of it a line out."""
    logging.getLogger("toolcrib").addHandler(logging.NullHandler())
    for line in sys.stdin:
        case = BY_ID[line.strip()]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lay_out(case, folder)
            answer = asyncio.run(tried(case, folder))
            answer["strict"] = refused_when_strict(folder)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
