"""`servers`, `servers_from` and `lock` of a project: what comes of them, and everything that can be wrong."""

from __future__ import annotations

import json
import marshal

import jsonschema
import pytest

from toolcrib.core.errors import DocumentError
from toolcrib.core.schemas import envelope, with_blocks
from toolcrib.core.server_config import Server
from toolcrib.executors import Executors
from toolcrib.formats.known_formats import FORMATS
from toolcrib.loading.cache.index import decode_value, encode_value
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import parse_documents, read_documents
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.loading.projects import Project, parse_project_file, settings_of
from toolcrib.loading.servers import parse_servers
from toolcrib.loading.settings import NO_SETTINGS, Settings, has_same_egress

KINDS = Executors({})
SHAPE = DocumentChecker("project", KINDS)

WHOLE = """\
project: shop
servers:
  time:
    command: uvx
    args: [mcp-server-time, "--local-timezone=${TZ:-UTC}"]
    env:
      LOG: "${LOG_LEVEL:-info}"
      PORT: 0080
    cwd: tools
    import: true
  crm:
    url: https://crm.example.com/mcp
    transport: sse
    headers: {X-Team: "${TEAM}"}
    auth: {type: http, scheme: bearer, token: "${CRM_TOKEN}"}
    import: {only: ["read_*"], except: ["*_raw"]}
    era: handshake
    timeouts: {start: 1m, idle: 500ms}
    scope: session
    elicitation: "my_hooks:answer"
    sampling: "my_hooks.models:Model.ask"
  bound: {command: ./serve}
lock: warn
profiles:
  ci: {lock: block}
  nightly: {extends: ci}
"""


def parsed(text, name="toolcrib.yaml") -> Project:
    return Project.parse(name, text, kinds=KINDS)


def servers(text: str) -> str:
    """A project with some servers."""
    lines = "".join(f"\n  {line}" for line in text.splitlines())
    return f"project: p\nservers:{lines}\n"


def told(text):
    """(code, pointer, line) of every error."""
    with pytest.raises(DocumentError) as raised:
        parsed(text)
    return [(problem.code, problem.pointer, problem.line) for problem in raised.value.problems]


def test_everything_that_can_be_said_of_servers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = parsed(WHOLE)
    root = str(tmp_path)
    time, crm, bound = (each._replace(places={}) for each in project.servers.values())
    assert time == Server(
        "time",
        command="uvx",
        args=("mcp-server-time", "--local-timezone=${TZ:-UTC}"),
        env={"LOG": "${LOG_LEVEL:-info}", "PORT": "0080"},
        cwd="tools",
        headers={},
        imports=True,
        root=root,
        places={},
    )
    assert crm == Server(
        "crm",
        transport="sse",
        env={},
        url="https://crm.example.com/mcp",
        headers={"X-Team": "${TEAM}"},
        auth={"type": "http", "scheme": "bearer", "token": "${CRM_TOKEN}"},
        era="handshake",
        start_timeout=60.0,
        idle_timeout=0.5,
        scope="session",
        elicitation="my_hooks:answer",
        sampling="my_hooks.models:Model.ask",
        imports=True,
        only=("read_*",),
        skipped=("*_raw",),
        root=root,
        places={},
    )
    assert bound == Server("bound", command="./serve", env={}, headers={}, root=root, places={})


def test_every_key_has_its_place():
    time = parsed(WHOLE, "shop/toolcrib.yaml").servers["time"]
    assert time.place() == "shop/toolcrib.yaml:3"
    assert time.place("command") == "shop/toolcrib.yaml:4"
    assert time.place("env") == "shop/toolcrib.yaml:6"
    assert time.place("env.PORT") == "shop/toolcrib.yaml:8"
    assert time.place("url") == time.place()


def test_servers_are_plain_data_that_an_index_keeps():
    project = parsed(WHOLE)
    assert decode_value(marshal.loads(marshal.dumps(encode_value(project)))) == project
    settings = settings_of(project, "nightly", "--profile")
    again = Settings(*marshal.loads(marshal.dumps(tuple(settings))))
    assert again == settings
    assert {name: Server(*values) for name, values in again.servers.items()} == dict(project.servers)


@pytest.mark.parametrize(
    ("profile", "lock", "place"),
    [
        (None, "warn", "toolcrib.yaml:23"),
        ("ci", "block", "toolcrib.yaml:25 (profile ci)"),
        ("nightly", "block", "toolcrib.yaml:25 (profile ci)"),
    ],
)
def test_the_lock_of_a_profile_stands_before_that_of_the_project(profile, lock, place):
    settings = settings_of(parsed(WHOLE), profile)
    assert (settings.lock, settings.places["lock"]) == (lock, place)
    assert settings.places["servers.crm"] == "toolcrib.yaml:11"


def test_without_a_word_of_it_there_is_no_lock_and_no_server():
    settings = settings_of(parsed("project: p"))
    assert (settings.lock, settings.servers, "lock" in settings.places) == ("", {}, False)


def test_other_servers_or_another_lock_are_another_reach():
    one = settings_of(parsed(WHOLE))
    assert has_same_egress(one, settings_of(parsed(f"# moved by a line\n{WHOLE}")))
    assert not has_same_egress(one, settings_of(parsed(WHOLE.replace("cwd: tools", "cwd: tool"))))
    assert not has_same_egress(one, settings_of(parsed(WHOLE), "ci"))
    assert not has_same_egress(one, None)
    assert has_same_egress(None, NO_SETTINGS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: {command: x, url: 'https://a.example'}", [("wrong_combination", "/servers/a/url", 3)]),
        ("a: {import: true}", [("missing_key", "/servers/a", 3)]),
        (
            "a: {command: x, headers: {A: b}, auth: {type: http, scheme: bearer, token: '${T}'}}",
            [("needless_key", "/servers/a/headers", 3), ("needless_key", "/servers/a/auth", 3)],
        ),
        (
            "a:\n  url: https://a.example\n  args: [x]\n  env: {A: b}\n  cwd: x",
            [
                ("needless_key", "/servers/a/args", 5),
                ("needless_key", "/servers/a/env", 6),
                ("needless_key", "/servers/a/cwd", 7),
            ],
        ),
        ("a: {command: x, transport: http}", [("contradiction", "/servers/a/transport", 3)]),
        ("a: {url: 'https://a.example', transport: stdio}", [("contradiction", "/servers/a/transport", 3)]),
        (
            "a: {url: 'https://a.example', transport: sse, era: modern}",
            [("contradiction", "/servers/a/era", 3)],
        ),
        ("a: {url: 'ftp://a.example'}", [("invalid_url", "/servers/a/url", 3)]),
        ("a: {url: a.example/mcp}", [("invalid_url", "/servers/a/url", 3)]),
        ("a: {url: 'https://'}", [("invalid_url", "/servers/a/url", 3)]),
        ("a: {url: 'https://me:pw@a.example/mcp'}", [("invalid_url", "/servers/a/url", 3)]),
        ("a: {url: 'https://${U}@a.example/mcp'}", [("invalid_url", "/servers/a/url", 3)]),
        ("a: {url: 'https://a.example/{{ args.x }}'}", [("invalid_url", "/servers/a/url", 3)]),
        ("a: {url: 'https://a.example/mcp#x'}", [("invalid_url", "/servers/a/url", 3)]),
        ("a: {url: 'https://a.example:port/mcp'}", [("invalid_url", "/servers/a/url", 3)]),
        ('a: {url: "https://a.example/\\r\\nX: y"}', [("invalid_url", "/servers/a/url", 3)]),
        ("a: {url: 'https://a.example/${'}", [("bad_variable", "/servers/a/url", 3)]),
        (
            "a: {command: '${', cwd: '${a b}'}",
            [("bad_variable", "/servers/a/command", 3), ("bad_variable", "/servers/a/cwd", 3)],
        ),
        ("a: {command: x, args: ['ok', '${!}']}", [("bad_variable", "/servers/a/args/1", 3)]),
        ("a: {command: x, env: {A: '${file:relative}'}}", [("bad_variable", "/servers/a/env/A", 3)]),
        ("a: {command: x, env: {'A=B': c}}", [("wrong_form", "/servers/a/env/A=B", 3)]),
        ("a: {command: npx -y server}", [("wrong_form", "/servers/a/command", 3)]),
        ("a: {command: node ./server.js}", [("wrong_form", "/servers/a/command", 3)]),
        ("a: {url: 'https://a.example', headers: {'A B': c}}", [("wrong_form", "/servers/a/headers/A B", 3)]),
        (
            "a: {url: 'https://a.example', headers: {Mcp-Session-Id: c, Host: d, Cookie: '${E}'}}",
            [
                ("reserved_header", "/servers/a/headers/Mcp-Session-Id", 3),
                ("reserved_header", "/servers/a/headers/Host", 3),
                ("reserved_header", "/servers/a/headers/Cookie", 3),
            ],
        ),
        (
            "a: {url: 'https://a.example', headers: {X-A: c, x-a: d}}",
            [("duplicate_header", "/servers/a/headers/x-a", 3)],
        ),
        (
            'a: {url: "https://a.example", headers: {X-A: "c\\nd"}}',
            [("unusable_credential", "/servers/a/headers/X-A", 3)],
        ),
        (
            "a: {url: 'https://a.example', headers: {Authorization: '${A}'}, auth: {type: http, scheme: bearer, token: '${T}'}}",
            [("duplicate_credential", "/servers/a/auth", 3)],
        ),
        ("a: {url: 'https://a.example', auth: {type: digest}}", [("not_allowed", "/servers/a/auth/type", 3)]),
        ("a: {command: x, timeouts: {start: 0s}}", [("out_of_range", "/servers/a/timeouts/start", 3)]),
        ("a: {command: x, timeouts: {start: 11m}}", [("out_of_range", "/servers/a/timeouts/start", 3)]),
        ("a: {command: x, timeouts: {idle: soon}}", [("wrong_form", "/servers/a/timeouts/idle", 3)]),
        ("a: {command: x, import: {only: []}}", [("wrong_value", "/servers/a/import/only", 3)]),
        ("a: {command: x, import: {except: ['']}}", [("wrong_value", "/servers/a/import/except/0", 3)]),
        ("a: {command: x, import: yes}", [("wrong_type", "/servers/a/import", 3)]),
        ("a: {command: x, elicitation: no_colon}", [("wrong_form", "/servers/a/elicitation", 3)]),
        ("a: {comand: x}", [("unknown_key", "/servers/a/comand", 3), ("missing_key", "/servers/a", 3)]),
        ("my server: {command: x}", [("wrong_form", "/servers/my server", 3)]),
        ("3d: {url: x}", [("wrong_form", "/servers/3d", 3), ("invalid_url", "/servers/3d/url", 3)]),
        ("a.b: {command: x}", [("wrong_form", "/servers/a.b", 3)]),
    ],
)
def test_what_is_wrong_with_a_server(text, expected):
    assert told(servers(text)) == expected


def test_the_name_that_would_do_is_said():
    with pytest.raises(DocumentError) as raised:
        parsed(servers("my server: {command: x}"))
    assert "`my_server`" in raised.value.problems[0].hint


def test_all_faults_of_all_servers_are_told_at_once():
    text = servers("a: {command: x, url: 'https://a.example'}\nb: {}\nc: {url: x}\ngood: {command: y}")
    assert [code for code, _pointer, _line in told(text)] == [
        "wrong_combination",
        "missing_key",
        "invalid_url",
    ]
    project, _problems = parse_project_file("toolcrib.yaml", *documents(text), SHAPE, formats=FORMATS)
    assert list(project.servers) == ["good"]
    assert project.broken


def documents(text):
    return parse_documents("toolcrib.yaml", text)


def test_secrets_that_are_written_out_are_warned_of_and_not_shown():
    text = servers(
        "a: {command: x, env: {API_KEY: hunter2, MODE: fast}}\nb: {url: 'https://b.example', headers: {X-Api-Key: hunter2}}"
    )
    _project, problems = parse_project_file("toolcrib.yaml", *documents(text), SHAPE, formats=FORMATS)
    assert [(problem.severity, problem.code, problem.pointer) for problem in problems] == [
        ("warning", "literal_secret", "/servers/a/env/API_KEY"),
        ("warning", "literal_secret", "/servers/b/headers/X-Api-Key"),
    ]
    assert not any("hunter2" in str(problem) for problem in problems)
    assert "`${API_KEY}`" in problems[0].hint


def test_what_is_looked_up_may_stand_anywhere():
    text = servers(
        "a: {url: '${BASE:-https://a.example}/mcp'}\n"
        "b: {url: 'https://${HOST}:${PORT}/mcp?key=${KEY}'}\n"
        "c: {command: '${HOME}/bin/serve', args: ['$${literal}', '{{ no expression }}'], cwd: '${workspaceFolder}/x'}\n"
        "d: {url: 'http://[::1]:8080/mcp'}"
    )
    assert list(parsed(text).servers) == ["a", "b", "c", "d"]


# files


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


CLIENT = {
    "mcpServers": {
        "time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"A": "1", "B": "2"}},
        "crm": {"type": "http", "url": "https://crm.example/mcp", "headers": {"X-A": "1"}},
    }
}


def project_in(folder, text):
    """The project that a folder holds, and its problems."""
    source = str(write(folder / "toolcrib.yaml", text))
    return parse_project_file(source, *read_documents(source, source), SHAPE, formats=FORMATS)


def test_all_servers_of_a_file_are_imported(tmp_path):
    write(tmp_path / ".mcp.json", CLIENT)
    project, problems = project_in(tmp_path, "project: p\nservers_from: .mcp.json\n")
    assert problems == []
    assert project.servers_from == (str(tmp_path / ".mcp.json"),)
    assert [(each.name, each.imports, each.root) for each in project.servers.values()] == [
        ("time", True, str(tmp_path)),
        ("crm", True, str(tmp_path)),
    ]


def test_what_the_project_says_is_laid_over_a_file_key_by_key(tmp_path):
    write(tmp_path / ".mcp.json", CLIENT)
    text = """\
project: p
servers_from: [.mcp.json]
servers:
  time: {env: {B: "3", C: "4"}, timeouts: {start: 5s}, import: {only: [now]}}
  crm: {auth: {type: http, scheme: bearer, token: "${T}"}, headers: {X-B: "2"}}
  own: {command: own}
"""
    project, problems = project_in(tmp_path, text)
    assert problems == []
    time, crm, own = project.servers.values()
    assert (time.command, time.args, time.env) == (
        "uvx",
        ("mcp-server-time",),
        {"A": "1", "B": "3", "C": "4"},
    )
    assert (time.start_timeout, time.imports, time.only) == (5.0, True, ("now",))
    assert (crm.url, crm.headers) == ("https://crm.example/mcp", {"X-A": "1", "X-B": "2"})
    assert crm.auth is not None
    assert crm.imports
    assert not own.imports
    assert time.place("command") == f"{tmp_path / '.mcp.json'}:1"
    assert time.place("env.A") == f"{tmp_path / '.mcp.json'}:1"
    assert time.place("env.B") == f"{tmp_path / 'toolcrib.yaml'}:4"


def test_a_url_takes_the_place_of_a_process_and_the_other_way_round(tmp_path):
    write(tmp_path / ".mcp.json", CLIENT)
    text = """\
project: p
servers_from: .mcp.json
servers:
  time: {url: "https://time.example/mcp"}
  crm: {command: crm, cwd: x}
"""
    project, problems = project_in(tmp_path, text)
    assert problems == []
    time, crm = project.servers.values()
    assert (time.transport, time.command, time.args, time.env) == ("http", "", (), {})
    assert (crm.transport, crm.url, crm.headers, crm.cwd) == ("stdio", "", {}, "x")


def test_a_server_keeps_the_name_that_its_client_gives_it(tmp_path):
    write(tmp_path / ".mcp.json", {"mcpServers": {"My Server": {"command": "a"}}})
    text = "project: p\nservers_from: .mcp.json\nservers: {My Server: {timeouts: {start: 5s}}}\n"
    project, problems = project_in(tmp_path, text)
    assert project.servers["My Server"].start_timeout == 5.0
    assert [problem.code for problem in problems] == ["server_name"]


def test_an_import_can_be_taken_back(tmp_path):
    write(tmp_path / ".mcp.json", CLIENT)
    project, _ = project_in(
        tmp_path, "project: p\nservers_from: .mcp.json\nservers: {time: {import: false}}\n"
    )
    assert [each.imports for each in project.servers.values()] == [False, True]


def test_paths_are_relative_to_the_file_that_says_them(tmp_path):
    write(tmp_path / "team" / "mcp.json", {"mcpServers": {"a": {"command": "./a", "cwd": "sub"}}})
    write(tmp_path / ".vscode" / "mcp.json", {"servers": {"b": {"command": "b"}}})
    text = "project: p\nservers_from: [team/mcp.json, .vscode/mcp.json]\nservers: {c: {command: c}}\n"
    project, problems = project_in(tmp_path, text)
    assert problems == []
    assert [each.root for each in project.servers.values()] == [
        str(tmp_path / "team"),
        str(tmp_path),
        str(tmp_path),
    ]


def test_a_file_in_the_home_folder(tmp_path, monkeypatch):
    write(tmp_path / "home" / ".claude.json", CLIENT)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project, _ = project_in(tmp_path, "project: p\nservers_from: ~/.claude.json\n")
    assert list(project.servers) == ["time", "crm"]


def test_of_two_files_the_later_counts(tmp_path):
    write(tmp_path / "a.json", CLIENT)
    write(tmp_path / "b.json", {"mcpServers": {"time": {"command": "b"}, "crm": CLIENT["mcpServers"]["crm"]}})
    project, (problem,) = project_in(tmp_path, "project: p\nservers_from: [a.json, b.json]\n")
    assert project.servers["time"].command == "b"
    assert (problem.severity, problem.code, problem.source) == (
        "warning",
        "duplicate_name",
        str(tmp_path / "b.json"),
    )
    assert "a.json:1" in problem.message


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("gone.json", [("path_not_found", "toolcrib.yaml", "/servers_from", 2)]),
        ("[.mcp.json, gone.json]", [("path_not_found", "toolcrib.yaml", "/servers_from/1", 2)]),
        (".", [("file_unreadable", "toolcrib.yaml", "/servers_from", 2)]),
        ("'${HOME}/x.json'", [("variable_not_allowed", "toolcrib.yaml", "/servers_from", 2)]),
        ('"a\\tb"', [("wrong_form", "toolcrib.yaml", "/servers_from", 2)]),
        ("empty.json", [("no_servers", "empty.json", "", 1)]),
        ("broken.json", [("invalid_json", "broken.json", "", 3)]),
        ("wrong.json", [("wrong_type", "wrong.json", "/mcpServers/a/args", 2)]),
        ("5", [("path_not_found", "toolcrib.yaml", "/servers_from", 2)]),
        ("{a: b}", [("wrong_type", "toolcrib.yaml", "/servers_from", 2)]),
        ("['']", [("wrong_value", "toolcrib.yaml", "/servers_from/0", 2)]),
    ],
)
def test_what_is_wrong_with_files_of_servers(tmp_path, named, expected):
    write(tmp_path / ".mcp.json", CLIENT)
    write(tmp_path / "empty.json", "{}")
    write(tmp_path / "broken.json", '{\n  "mcpServers": {\n    "a": }\n}\n')
    write(tmp_path / "wrong.json", '{"mcpServers": {\n "a": {"command": "a", "args": 5}}}')
    project, problems = project_in(tmp_path, f"project: p\nservers_from: {named}\n")
    assert [
        (problem.code, problem.source.rpartition("/")[2], problem.pointer, problem.line)
        for problem in problems
    ] == expected
    own = [problem for problem in problems if problem.source.endswith("toolcrib.yaml")]
    assert project.broken == bool(own)


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ({"mcpServers": {"a": {"command": "a", "disabled": True}}}, "server_left_out"),
        ({"mcpServers": {"a": {"type": "ws", "url": "wss://a.example"}}}, "server_left_out"),
        ({"mcpServers": {"a": {"command": ["a"], "args": 5}}}, "wrong_type"),
        ("{", "invalid_json"),
        ("{}", "no_servers"),
    ],
)
def test_what_is_laid_over_a_server_that_is_left_out_is_no_second_fault(tmp_path, file, code):
    write(tmp_path / ".mcp.json", file)
    text = "project: p\nservers_from: .mcp.json\nservers: {a: {import: false}, own: {command: own}}\n"
    project, problems = project_in(tmp_path, text)
    assert [problem.code for problem in problems] == [code]
    assert list(project.servers) == ["own"]


def test_files_are_noted_before_they_are_read_whether_they_are_there_or_not(tmp_path):
    write(tmp_path / ".mcp.json", CLIENT)
    source = str(write(tmp_path / "toolcrib.yaml", "project: p\nservers_from: [.mcp.json, gone.json]\n"))
    trail = FileTracker()
    parse_project_file(source, *read_documents(source, source), SHAPE, trail.file, formats=FORMATS)
    seen = trail.closed()
    assert seen.unchanged()
    write(tmp_path / "gone.json", CLIENT)
    assert seen.changed() == [str(tmp_path / "gone.json")]
    write(tmp_path / ".mcp.json", {"mcpServers": {}})
    assert seen.changed() == [str(tmp_path / ".mcp.json"), str(tmp_path / "gone.json")]


def test_a_mapping_in_memory_is_read_like_a_file():
    found, problems = parse_servers(
        {"a": {"command": "x", "args": ["${"]}, "b": {"command": "y"}}, root="/srv"
    )
    assert list(found) == ["b"]
    assert found["b"].root == "/srv"
    assert [(problem.code, problem.pointer, problem.source) for problem in problems] == [
        ("bad_variable", "/servers/a/args/0", "<memory>")
    ]


# the schema


def test_the_examples_of_a_server_load():
    for example in envelope("project")["$defs"]["server"]["examples"]:
        assert list(parsed(json.dumps({"project": "p", "servers": {"a": example}}), "toolcrib.json").servers)


def test_the_examples_of_each_key_of_a_server_load():
    keys = envelope("project")["$defs"]["server"]["properties"]
    of_urls = {"url", "transport", "headers", "auth"}
    for key in keys:
        for example in keys[key].get("examples", ()):
            server = {"url": "https://a.example/mcp"} if key in of_urls else {"command": "a"}
            text = json.dumps({"project": "p", "servers": {"s": {**server, key: example}}})
            assert list(parsed(text, "toolcrib.json").servers) == ["s"]


def test_the_examples_of_the_whole_key_load():
    for example in envelope("project")["properties"]["servers"]["examples"]:
        assert list(parsed(json.dumps({"project": "p", "servers": example}), "toolcrib.json").servers)


def test_editors_get_the_language_of_auth_as_well():
    schema = with_blocks("project", {})
    judge = jsonschema.Draft202012Validator(schema)
    good = {"type": "http", "scheme": "bearer", "token": "${T}"}
    document = {"project": "p", "servers": {"a": {"url": "https://a.example", "auth": good}}}
    assert judge.is_valid(document)
    document["servers"]["a"]["auth"] = {"type": "digest"}
    assert not judge.is_valid(document)
