"""`agents` of a project: A2A agents, read as servers with the transport `a2a`."""

from __future__ import annotations

import pytest

from toolcrib import Runtime


def opened(folder, agents):
    (folder / "toolcrib.yaml").write_text(f"project: p\nsources: []\n{agents}")
    return Runtime.open(folder, index=False)


def test_an_agent_is_a_server_with_a_kind(tmp_path):
    runtime = opened(
        tmp_path,
        """
agents:
  crm:
    card: https://crm.example.com
    hosts: [api.crm.example.com, "10.0.0.1:8443"]
    headers: {X-Team: a}
    import: {only: ["read_*"], except: ["*_raw"], tags: [crm], modes: ["application/*"]}
    lenient: true
    timeouts: {start: 5s}
  billing: {url: "https://billing.example.com/a2a", tools: [get_invoice]}
""",
    )
    assert runtime.problems == ()
    crm, billing = runtime.servers["crm"], runtime.servers["billing"]
    assert (crm.transport, crm.mode, crm.kind, crm.url) == ("a2a", "a2a", "agent", "https://crm.example.com")
    assert crm.hosts == ("api.crm.example.com", "10.0.0.1:8443")
    assert (crm.only, crm.skipped, crm.tags, crm.output_modes) == (
        ("read_*",),
        ("*_raw",),
        ("crm",),
        ("application/*",),
    )
    assert (crm.lenient, crm.start_timeout, crm.imports, crm.headers) == (True, 5.0, True, {"X-Team": "a"})
    assert (billing.url, billing.tools, billing.imports) == (
        "https://billing.example.com/a2a",
        ("get_invoice",),
        False,
    )


def test_a_warm_start_has_the_same_agents(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(
        "project: p\nsources: []\nagents: {crm: {card: https://crm.example.com, hosts: [a.example], tags: [], lenient: true}}".replace(
            " tags: [],", ""
        )
    )
    assert Runtime.open(tmp_path).servers == Runtime.open(tmp_path).servers
    assert Runtime.open(tmp_path).servers["crm"].hosts == ("a.example",)


@pytest.mark.parametrize(
    ("agents", "line", "code", "text"),
    [
        ("agents: {crm: {crad: https://a.example}}", 3, "unknown_key", "did you mean `card`"),
        ("agents: {crm: {}}", 3, "wrong_combination", "either `card`, or `url` and `tools`"),
        (
            "agents: {crm: {card: https://a.example, url: https://a.example/x, tools: [a]}}",
            3,
            "wrong_combination",
            "either",
        ),
        ("agents: {crm: {url: https://a.example/x}}", 3, "wrong_combination", "either"),
        ("agents:\n  crm:\n    card: ftp://a.example", 5, "invalid_url", "must start with `https://`"),
        ("agents:\n  crm:\n    card: https://u:p@a.example", 5, "invalid_url", "contains credentials"),
        (
            "agents:\n  crm:\n    card: https://a.example\n    hosts: ['https://b.example']",
            6,
            "wrong_form",
            "is not a valid host",
        ),
        (
            "agents:\n  crm:\n    card: https://a.example\n    timeouts: {start: 1h}",
            6,
            "out_of_range",
            "at most 10m",
        ),
        (
            "servers: {crm: {url: https://a.example}}\nagents:\n  crm: {card: https://a.example}",
            5,
            "duplicate_name",
            "the name `crm` is already used by a server",
        ),
        (
            "agents:\n  crm:\n    card: https://a.example\n    headers: {Authorization: s3cr3t}",
            6,
            "literal_secret",
            "in plain text",
        ),
        (
            "agents:\n  crm:\n    card: https://a.example\n    auth: {type: apiKey, in: query, name: k}",
            6,
            "missing_key",
            "value",
        ),
    ],
)
def test_a_problem_of_an_agent_has_its_place(tmp_path, agents, line, code, text):
    runtime = opened(tmp_path, agents + "\n")
    told = [(problem.line, problem.code, f"{problem.message} {problem.hint}") for problem in runtime.problems]
    assert any(each[:2] == (line, code) and text in each[2] for each in told), told
    assert "s3cr3t" not in str(told)


def test_one_bad_agent_leaves_the_others(tmp_path):
    runtime = opened(
        tmp_path, "agents:\n  bad: {card: 'ftp://a.example'}\n  good: {card: 'https://a.example'}\n"
    )
    assert [*runtime.servers] == ["good"]
