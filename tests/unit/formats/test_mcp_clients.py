"""The files of MCP clients, each in the shape that its client writes, and what comes of them."""

from __future__ import annotations

import pytest

from toolcrib.core.server_config import Server
from toolcrib.formats.known_formats import FORMATS
from toolcrib.loading.servers import is_servers_file, read_servers_file


def read(tmp_path, text, name=".mcp.json"):
    """The servers of a file, and (severity, code, pointer) of every problem."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert is_servers_file(str(path), FORMATS)
    servers, problems = read_servers_file(str(path), FORMATS)
    assert all(problem.source == str(path) and problem.line and problem.column for problem in problems)
    return servers, [(problem.severity, problem.code, problem.pointer) for problem in problems]


def told(server: Server):
    """What of a server differs from the defaults, without its places and root."""
    usual = Server(server.name)
    return {
        key: value
        for key, value in server._asdict().items()
        if key not in {"name", "places", "root", "imports"} and value != getattr(usual, key) and value != {}
    }


CLAUDE_CODE = """{
  "mcpServers": {
    "shared-server": {
      "command": "/path/to/server",
      "args": ["--root", "${PROJECT_ROOT:-/srv}"],
      "env": {"API_KEY": "${API_KEY}", "CACHE_DIR": "${CACHE_DIR:-/tmp}"}
    },
    "api-server": {
      "type": "http",
      "url": "${API_BASE_URL:-https://api.example.com}/mcp",
      "headers": {"Authorization": "Bearer ${API_TOKEN}"},
      "timeout": 600000
    },
    "asana": {"type": "sse", "url": "https://mcp.asana.example/sse"},
    "inside": {"type": "sdk", "name": "inside"},
    "helped": {"type": "http", "url": "https://h.example/mcp", "headersHelper": "/opt/bin/headers.sh"}
  }
}
"""


def test_claude_code(tmp_path):
    servers, problems = read(tmp_path, CLAUDE_CODE)
    assert {name: told(server) for name, server in servers.items()} == {
        "shared-server": {
            "command": "/path/to/server",
            "args": ("--root", "${PROJECT_ROOT:-/srv}"),
            "env": {"API_KEY": "${API_KEY}", "CACHE_DIR": "${CACHE_DIR:-/tmp}"},
        },
        "api-server": {
            "transport": "http",
            "url": "${API_BASE_URL:-https://api.example.com}/mcp",
            "headers": {"Authorization": "Bearer ${API_TOKEN}"},
        },
        "asana": {"transport": "sse", "url": "https://mcp.asana.example/sse"},
        "helped": {"transport": "http", "url": "https://h.example/mcp"},
    }
    assert all(server.imports and server.root == str(tmp_path) for server in servers.values())
    assert problems == [
        ("warning", "server_left_out", "/mcpServers/inside/type"),
        ("notice", "client_key", "/mcpServers/api-server/timeout"),
        ("notice", "client_key", "/mcpServers/inside/name"),
        ("warning", "client_key", "/mcpServers/helped/headersHelper"),
    ]


def test_claude_desktop_keeps_other_things_in_its_file(tmp_path):
    text = """{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"]
    }
  },
  "preferences": {"menuBarEnabled": false}
}
"""
    servers, problems = read(tmp_path, text, "claude_desktop_config.json")
    assert servers["filesystem"].args[-1] == "/Users/me/Desktop"
    assert problems == [("notice", "client_key", "/globalShortcut")]


def test_cursor(tmp_path):
    text = """{
  "mcpServers": {
    "local": {
      "type": "stdio",
      "command": "${workspaceFolder}/bin/server",
      "args": ["--home", "${userHome}", "${pathSeparator}x${/}y"],
      "env": {"KEY": "${env:MY_KEY}"},
      "envFile": ".env"
    },
    "remote": {
      "url": "https://mcp.example.com/mcp",
      "headers": {"X-Key": "${env:MY_KEY}"},
      "auth": {"CLIENT_ID": "${env:ID}", "CLIENT_SECRET": "${env:SECRET}", "scopes": ["read"]}
    }
  }
}
"""
    servers, problems = read(tmp_path, text, ".cursor/mcp.json")
    assert told(servers["local"]) == {
        "command": "${workspaceFolder}/bin/server",
        "args": ("--home", "${userHome}", "/x/y"),
        "env": {"KEY": "${env:MY_KEY}"},
    }
    assert servers["local"].root == str(tmp_path)
    assert servers["local"].known_variables()["workspaceFolder"] == str(tmp_path)
    assert servers["remote"].auth is None
    assert problems == [
        ("warning", "client_key", "/mcpServers/local/envFile"),
        ("warning", "client_key", "/mcpServers/remote/auth"),
    ]


def test_windsurf(tmp_path):
    text = """{
  "mcpServers": {
    "remote": {
      "serverUrl": "https://mcp.example.com/mcp",
      "headers": {"Authorization": "Bearer ${file:/run/secrets/token}"},
      "disabledTools": ["delete_all"]
    },
    "off": {"command": "npx", "args": ["-y", "x"], "disabled": true, "env": {}}
  }
}
"""
    servers, problems = read(tmp_path, text, "mcp_config.json")
    assert told(servers["remote"]) == {
        "transport": "http",
        "url": "https://mcp.example.com/mcp",
        "headers": {"Authorization": "Bearer ${file:/run/secrets/token}"},
        "skipped": ("delete_all",),
    }
    assert not servers["remote"].offers("delete_all")
    assert problems == [("notice", "server_left_out", "/mcpServers/off")]


VS_CODE = """{
  // What is asked for // is kept by the editor.
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Key: // see \\"docs\\"", "password": true},
    {"type": "pickString", "id": "region", "options": ["eu", "us"], "default": "eu"},
  ],
  /* The servers
     of the workspace. */
  "servers": {
    "Perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask", "https://a.example//b", "/* no comment */",],
      "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "REGION": "${input:region}", "PORT": 8080, "GONE": null},
      "dev": {"watch": "build/**/*.js"},
    },
    "github": {"type": "http", "url": "https://api.githubcopilot.example/mcp"},
    "fetch": {"command": "uvx", "args": ["mcp-server-fetch"], "cwd": "${workspaceFolder:app}/tools"},
  },
}
"""


def test_vs_code(tmp_path):
    servers, problems = read(tmp_path, VS_CODE, ".vscode/mcp.json")
    assert {name: told(server) for name, server in servers.items()} == {
        "Perplexity": {
            "command": "npx",
            "args": ("-y", "server-perplexity-ask", "https://a.example//b", "/* no comment */"),
            "env": {
                "PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}",
                "REGION": "${REGION:-eu}",
                "PORT": "8080",
            },
        },
        "github": {"transport": "http", "url": "https://api.githubcopilot.example/mcp"},
        "fetch": {
            "command": "uvx",
            "args": ("mcp-server-fetch",),
            "cwd": "${workspaceFolder}/tools",
        },
    }
    assert servers["fetch"].root == str(tmp_path)
    assert problems == [
        ("notice", "client_key", "/servers/Perplexity/dev"),
        ("notice", "looked_up", "/servers/Perplexity/env/PERPLEXITY_API_KEY"),
        ("notice", "looked_up", "/servers/Perplexity/env/REGION"),
    ]


def test_what_an_editor_asks_for_is_said_with_the_variable_to_set(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(VS_CODE, encoding="utf-8")
    _servers, problems = read_servers_file(str(path), FORMATS)
    first = next(problem for problem in problems if problem.code == "looked_up")
    assert (first.line, first.hint) == (14, "set `PERPLEXITY_KEY`")
    assert "`${input:perplexity-key}`" in first.message


def test_vs_code_settings_hold_servers_below_mcp(tmp_path):
    text = '{"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"a": {"command": "a"}}}}'
    servers, problems = read(tmp_path, text, "settings.json")
    assert list(servers) == ["a"]
    assert problems == [("notice", "client_key", "/editor.fontSize")]


def test_cline(tmp_path):
    text = """{
  "mcpServers": {
    "brave": {
      "command": "npx", "args": ["-y", "@brave/brave-search-mcp-server"],
      "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"},
      "alwaysAllow": [], "autoApprove": ["brave_web_search"], "disabled": false, "timeout": 60
    },
    "remote": {"type": "streamableHttp", "url": "https://r.example/mcp", "disabled": false, "alwaysAllow": ["x"]},
    "older": {"transportType": "stdio", "command": "node", "args": ["s.js"]}
  }
}
"""
    servers, problems = read(tmp_path, text, "cline_mcp_settings.json")
    assert [server.transport for server in servers.values()] == ["stdio", "http", "stdio"]
    assert problems == [
        ("notice", "client_key", "/mcpServers/brave/alwaysAllow"),
        ("notice", "client_key", "/mcpServers/brave/autoApprove"),
        ("notice", "client_key", "/mcpServers/brave/timeout"),
    ]


def test_a_key_without_a_meaning_is_told_once_for_all_servers(tmp_path):
    entries = ", ".join(f'"s{at}": {{"command": "c", "alwaysAllow": []}}' for at in range(5))
    path = tmp_path / "mcp.json"
    path.write_text(f'{{"mcpServers": {{{entries}}}}}', encoding="utf-8")
    _servers, (problem,) = read_servers_file(str(path), FORMATS)
    assert problem.message == (
        "`alwaysAllow` of `s0`, `s1`, `s2` ... is ignored: approvals are configured elsewhere"
    )


def test_roo(tmp_path):
    text = """{
  "mcpServers": {
    "r": {
      "type": "streamable-http", "url": "https://r.example/mcp", "headers": {"X-K": "v"},
      "disabledTools": ["a", "b"], "watchPaths": ["build"], "timeout": 30
    }
  }
}
"""
    servers, problems = read(tmp_path, text, ".roo/mcp.json")
    assert servers["r"].transport == "http"
    assert servers["r"].skipped == ("a", "b")
    assert servers["r"].root == str(tmp_path)
    assert [pointer.rpartition("/")[2] for _severity, _code, pointer in problems] == ["watchPaths", "timeout"]


def test_gemini_cli(tmp_path):
    text = """{
  "theme": "Dracula",
  "mcpServers": {
    "python": {
      "command": "python", "args": ["-m", "server"], "cwd": "./server",
      "env": {"API_KEY": "$MY_API_TOKEN", "PRICE": "$5", "MIXED": "a$B"},
      "timeout": 30000, "trust": false, "includeTools": ["safe_*"], "excludeTools": ["safe_not"]
    },
    "http": {"httpUrl": "https://g.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
    "events": {"url": "https://g.example/sse"}
  }
}
"""
    servers, problems = read(tmp_path, text, ".gemini/settings.json")
    assert told(servers["python"]) == {
        "command": "python",
        "args": ("-m", "server"),
        "cwd": "./server",
        "env": {"API_KEY": "${MY_API_TOKEN}", "PRICE": "$5", "MIXED": "a$B"},
        "only": ("safe_*",),
        "skipped": ("safe_not",),
    }
    assert servers["python"].offers("safe_one")
    assert not servers["python"].offers("safe_not")
    assert not servers["python"].offers("other")
    assert [server.transport for server in servers.values()] == ["stdio", "http", "sse"]
    assert ("notice", "looked_up", "/mcpServers/python/env/API_KEY") in problems


def test_copilot(tmp_path):
    text = """{
  "mcpServers": {
    "sentry": {
      "type": "local", "command": "npx", "args": ["@sentry/mcp-server"],
      "tools": ["get_issue_*"], "env": {"SENTRY_TOKEN": "$COPILOT_MCP_SENTRY_TOKEN"}
    },
    "all": {"type": "http", "url": "https://c.example/mcp", "tools": ["*"]},
    "none": {"type": "http", "url": "https://c.example/mcp2", "tools": []}
  }
}
"""
    servers, problems = read(tmp_path, text, ".copilot/mcp-config.json")
    assert servers["sentry"].transport == "stdio"
    assert servers["sentry"].env == {"SENTRY_TOKEN": "${COPILOT_MCP_SENTRY_TOKEN}"}
    assert [server.offers("get_issue_1") for server in servers.values()] == [True, True, False]
    assert problems == [("notice", "looked_up", "/mcpServers/sentry/env/SENTRY_TOKEN")]


def test_kiro(tmp_path):
    text = """{
  "mcpServers": {
    "aws": {
      "command": "uvx", "args": ["awslabs.aws-documentation-mcp-server@latest"],
      "env": {"FASTMCP_LOG_LEVEL": "ERROR"}, "disabled": false, "autoApprove": [], "disabledTools": []
    },
    "oauth": {"url": "https://k.example/mcp", "oauth": {"oauthScopes": []}}
  }
}
"""
    servers, problems = read(tmp_path, text, ".kiro/settings/mcp.json")
    assert servers["aws"].root == str(tmp_path)
    assert servers["aws"].skipped == ()
    assert [(severity, pointer) for severity, _code, pointer in problems] == [
        ("notice", "/mcpServers/aws/autoApprove"),
        ("warning", "/mcpServers/oauth/oauth"),
    ]


def test_zed(tmp_path):
    text = """// Zed settings
{
  "theme": "One Dark",
  "context_servers": {
    "local": {"source": "custom", "command": "node", "args": ["s.js"], "env": {}},
    "remote": {"url": "https://z.example/mcp", "headers": {"Authorization": "Bearer ${Z}"}},
  },
}
"""
    servers, problems = read(tmp_path, text, ".zed/settings.json")
    assert list(servers) == ["local", "remote"]
    assert [pointer for _severity, _code, pointer in problems] == ["/context_servers/local/source", "/theme"]


def test_fastmcp(tmp_path):
    text = """{
  "mcpServers": {
    "weather": {"url": "https://w.example/mcp", "transport": "streamable_http"},
    "assistant": {"command": "python", "args": ["./a.py"], "transport": "stdio", "env": {"DEBUG": true}}
  }
}
"""
    servers, problems = read(tmp_path, text, "fastmcp.json")
    assert servers["weather"].transport == "http"
    assert servers["assistant"].env == {"DEBUG": "true"}
    assert problems == []


def test_continue_writes_yaml_with_a_list(tmp_path):
    text = """mcpServers:
  - name: SQLite
    command: npx
    args: ["-y", "mcp-sqlite", "db.sqlite"]
  - name: remote
    type: streamable-http
    url: https://c.example/mcp
  - command: nameless
"""
    servers, problems = read(tmp_path, text, "mcp.yaml")
    assert list(servers) == ["SQLite", "remote"]
    assert problems[0] == ("error", "missing_key", "/mcpServers/2")


def test_keys_without_effect_for_a_kind_are_dropped(tmp_path):
    text = """{"mcpServers": {
      "url": {"url": "https://u.example/mcp", "env": {"A": "b"}, "args": [], "command": ""},
      "process": {"command": "c", "headers": {"A": "b"}, "url": ""}
    }}"""
    servers, problems = read(tmp_path, text)
    assert told(servers["url"]) == {"transport": "http", "url": "https://u.example/mcp"}
    assert told(servers["process"]) == {"command": "c"}
    assert problems == [
        ("notice", "client_key", "/mcpServers/url/env"),
        ("notice", "client_key", "/mcpServers/process/headers"),
    ]


WRONG = """{
  "mcpServers": {
    "both": {"command": "a", "url": "https://b.example"},
    "neither": {"args": ["a"]},
    "number": 5,
    "kinds": {
      "command": 1.5e3,
      "args": "one",
      "env": ["A=b"],
      "headers": {"A": {"b": "c"}},
      "disabled": "yes"
    },
    "line": {"command": "npx -y server"},
    "schemes": {"url": "ws://x.example"},
    "two": {"type": "http", "transport": "sse", "url": "https://t.example"},
    "user": {"url": "https://me:hunter2@u.example/mcp"},
    "open": {"command": "a", "args": ["${NEVER"]},
    "good": {"command": "good"}
  }
}
"""


def test_one_bad_server_never_hides_the_others_and_all_is_told_at_once(tmp_path):
    servers, problems = read(tmp_path, WRONG)
    assert list(servers) == ["good"]
    assert sorted(problems) == sorted(
        [
            ("error", "wrong_combination", "/mcpServers/both/url"),
            ("error", "missing_key", "/mcpServers/neither"),
            ("error", "wrong_type", "/mcpServers/number"),
            ("error", "wrong_type", "/mcpServers/kinds/args"),
            ("error", "wrong_type", "/mcpServers/kinds/env"),
            ("error", "wrong_type", "/mcpServers/kinds/headers/A"),
            ("error", "wrong_type", "/mcpServers/kinds/disabled"),
            ("error", "wrong_form", "/mcpServers/line/command"),
            ("error", "invalid_url", "/mcpServers/schemes/url"),
            ("error", "contradiction", "/mcpServers/two/transport"),
            ("error", "invalid_url", "/mcpServers/user/url"),
            ("error", "bad_variable", "/mcpServers/open/args/0"),
        ]
    )


def test_no_value_is_shown_that_may_be_secret(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(
        """{"mcpServers": {
          "a": {"url": "https://me:hunter2@u.example/mcp"},
          "b": {"url": "hunter2"},
          "c": {"url": "https://u.example/ hunter2"},
          "d": {"command": "a", "env": {"TOKEN": "hunter2 ${"}, "args": ["${hunter2"]},
          "e": {"url": "https://u.example", "headers": {"Authorization": "hunter2\\n"}},
          "f": {"command": "a", "env": {"A": ["hunter2"]}},
          "g": {"command": ["hunter2"], "args": {"hunter": 2}},
          "h": {"command": "c", "env": {"API_KEY": "hunter2"}}
        }}""",
        encoding="utf-8",
    )
    _servers, problems = read_servers_file(str(path), FORMATS)
    assert len(problems) >= 8
    assert not any("hunter2" in str(problem) for problem in problems)


def test_names_that_tools_cant_have_are_told(tmp_path):
    text = '{"mcpServers": {"My Server": {"command": "a"}, "My/Server": {"command": "b"}, "3d": {"command": "c"}}}'
    servers, problems = read(tmp_path, text)
    assert list(servers) == ["My Server", "My/Server", "3d"]
    assert problems == [
        ("notice", "server_name", "/mcpServers/My Server"),
        ("warning", "server_name", "/mcpServers/My~1Server"),
        ("notice", "server_name", "/mcpServers/3d"),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_document"),
        ("// nothing", "empty_document"),
        ("{}", "no_servers"),
        ("[]", "no_servers"),
        ("[{}, {}]", "no_servers"),
        ('{"mcpServers": 5}', "wrong_type"),
        ('{"mcpServers": {', "invalid_json"),
        ("{'mcpServers': {}}", "invalid_json"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "duplicate_key"),
        ('{"mcpServers": {"a": {"command": "x" /* open }}}', "invalid_json"),
    ],
)
def test_a_file_that_names_nothing_or_cant_be_read(tmp_path, text, code):
    path = tmp_path / "mcp.json"
    path.write_text(text, encoding="utf-8")
    servers, problems = read_servers_file(str(path), FORMATS)
    assert servers == {}
    assert [problem.code for problem in problems if problem.severity == "error"] == [code]


def test_a_second_document_is_not_passed_over(tmp_path):
    path = tmp_path / "mcp.yaml"
    path.write_text("mcpServers: {a: {command: a}}\n---\nmcpServers: {b: {command: b}}\n", encoding="utf-8")
    _servers, (problem,) = read_servers_file(str(path), FORMATS)
    assert (problem.code, problem.line) == ("several_documents", 3)


def test_a_file_that_is_not_there(tmp_path):
    servers, (problem,) = read_servers_file(str(tmp_path / "mcp.json"), FORMATS)
    assert (servers, problem.code) == ({}, "path_not_found")
    assert not is_servers_file(str(tmp_path / "mcp.json"), FORMATS)
    assert not is_servers_file(str(tmp_path), FORMATS)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "x", "mcp": {"server": "a"}}',
        '{"openapi": "3.1.0", "servers": [{"url": "https://a.example"}]}',
        '{"asyncapi": "2.6.0", "servers": {"a": {"url": "broker.example", "protocol": "kafka"}}}',
        '{"servers": {"a": {"host": "b"}}}',
        '{"mcp": {"server": "a"}}',
        "{}",
        "[1]",
        "5",
        "servers",
    ],
)
def test_other_files_are_none(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    assert not is_servers_file(str(path), FORMATS)
