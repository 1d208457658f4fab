"""The command itself: its verbs, what it loads, how it ends."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from toolcrib.cli import entry, exit_codes
from toolcrib.cli.entry import VERBS
from toolcrib.cli.group import VerbGroup, cli
from toolcrib.core.errors import ConfigurationError

SLOW = "name: slow\nmock: {result: done, latency: 5m}\ntimeout: 10m\n"


MAIN = "from toolcrib.cli import main; main()"


def process(*words, code=MAIN, **options):
    """A real process of the command, to be used as a context."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in map(os.path.abspath, sys.path))
    }
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    return subprocess.Popen([sys.executable, "-c", code, *words], env=environment, **{**streams, **options})


def test_help_lists_every_verb_with_its_summary(toolcrib):
    shown = " ".join(toolcrib("--help").stdout.split())
    for name, verb in VERBS.items():
        assert f"{name} {verb.summary}" in shown


@pytest.mark.parametrize("name", VERBS)
def test_the_table_says_of_a_verb_what_its_own_help_says_first(name, toolcrib):
    command = cli.get_command(click.Context(cli), name)
    assert command.name == name
    assert command.help.splitlines()[0] == VERBS[name].summary
    assert VERBS[name].summary in " ".join(toolcrib(name, "-h").stdout.split())


def test_help_loads_neither_the_engine_nor_a_heavy_library():
    code = (
        "import sys\nfrom toolcrib.cli.group import cli\ncli.main(['--help'], standalone_mode=False)\n"
        "print('loaded', [name for name in ('toolcrib.engine.runtime', 'jinja2', 'jsonschema', 'jsonschema_rs', 'yaml') if name in sys.modules])"
    )
    with process(code=code) as run:
        out, _err = run.communicate(timeout=60)
    assert out.splitlines()[-1] == "loaded []"


def test_version_is_that_of_the_distribution(toolcrib):
    assert toolcrib("--version").stdout == f"toolcrib {version('toolcrib')}\n"


def test_python_m_toolcrib_is_the_command():
    with process(code="import runpy; runpy.run_module('toolcrib', run_name='__main__')") as run:
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (exit_codes.USAGE, "")
    assert "validate" in err


def test_a_misspelt_verb_is_answered_with_the_near_ones(toolcrib):
    result = toolcrib("vaildate")
    assert result.exit_code == exit_codes.USAGE
    assert "unknown command `vaildate`; did you mean `validate`?" in result.stderr


def test_a_word_far_from_every_verb_is_answered_with_all_of_them(toolcrib):
    assert "the commands are: init, new, validate, lint, list" in toolcrib("qqqqqqq\x1b[31m").stderr


def test_a_runtime_that_can_not_be_set_up_ends_as_a_usage_error_without_a_trace():
    group = VerbGroup("toolcrib")

    @group.command()
    def break_down():
        raise ConfigurationError("no such \x1b[31mmiddleware", hint="install it")

    result = CliRunner().invoke(group, ["break-down"])
    assert result.exit_code == exit_codes.USAGE
    assert result.stderr == "Error: no such \\x1b[31mmiddleware\n    hint: install it\n"


def test_an_interrupt_in_a_verb_ends_with_130():
    group = VerbGroup("toolcrib")

    @group.command()
    def wait():
        raise KeyboardInterrupt

    result = CliRunner().invoke(group, ["wait"])
    assert (result.exit_code, result.stderr) == (exit_codes.INTERRUPTED, "interrupted\n")


def test_ctrl_c_in_a_running_call_ends_the_process_quietly(write):
    write({"descriptors/slow.tool.yaml": SLOW})
    with process("call", "slow", "--explain") as run:
        assert run.stderr.readline() == "plan:\n"
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (exit_codes.INTERRUPTED, "")
    assert err.endswith("interrupted\n")
    assert "Traceback" not in err


def test_a_reader_that_goes_away_leaves_no_trace():
    read, written = os.pipe()
    os.close(read)
    with process("schema", stdout=written) as run:
        os.close(written)
        _out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (exit_codes.PROBLEMS, "")


def test_a_terminal_of_a_poor_encoding_gets_escapes(write, monkeypatch):
    write({"descriptors/umlaut.tool.yaml": "name: umlaut\ndescription: 東.\n"})
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    with process("list") as run:
        out, _err = run.communicate(timeout=60)
    assert (run.returncode, out.splitlines()[0]) == (0, "umlaut  unbound  \\u6771.")


def test_main_ends_the_process_with_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["toolcrib", "--version"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("toolcrib ")


def test_a_stream_that_can_not_be_reconfigured_is_left_alone(monkeypatch, on_terminal):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "argv", ["toolcrib", "--version"])
    with pytest.raises(SystemExit):
        entry.main()
    assert sys.stdout.getvalue().startswith("toolcrib ")


def test_packs_may_be_named_before_and_after_the_verb(tools, write, document):
    write(
        {
            "one/one.tool.yaml": "name: one\nmock: {result: 1}\n",
            "two/two.tool.yaml": "name: two\nmock: {result: 2}\n",
        }
    )
    found = document("--pack", "one", "list", "--pack", "two", "--json")["tools"]
    assert [tool["name"] for tool in found] == ["echo", "failing", "later", "one", "two"]


def test_a_pack_that_is_not_there_is_a_usage_error(tools, toolcrib):
    result = toolcrib("list", "--pack", "nowhere")
    assert result.exit_code == exit_codes.USAGE
    assert "nowhere" in result.stderr


def test_colours_reach_a_terminal_and_nothing_else(tools, toolcrib, on_terminal, monkeypatch):
    assert "\x1b[" in on_terminal("show", "echo")[0]
    assert "\x1b[" not in toolcrib("show", "echo").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in on_terminal("show", "echo")[0]


def test_the_package_has_a_file_for_every_verb():
    folder = Path(entry.__file__).parent
    assert all((folder / f"{verb.module}.py").is_file() for verb in VERBS.values())
