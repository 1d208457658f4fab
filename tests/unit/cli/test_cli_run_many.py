"""`toolcrib run` with several runs of a scenario, in several processes, with golden files."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sampling import sample
from toolcrib.cli import exit_codes
from toolcrib.cli.run_plan import others_pay_off, run_on_changes
from toolcrib.core.errors import ConfigurationError
from toolcrib.loading.fingerprints import FileTracker

TRIP = """
scenario: trip
seed: 3
matrix: {city: [Oslo, Paris], days: [1, 2]}
tags: [travel]
steps:
  - call: echo
    args: {text: "{{ matrix.city }}", times: "{{ matrix.days }}"}
    expect: {golden: "goldens/{{ matrix.city }}-{{ matrix.days }}.json"}
---
scenario: again
repeat: 2
steps: [{call: echo, args: {text: "{{ run }}"}}]
"""


@pytest.fixture
def trip(tools, write):
    write({"descriptors/trips/trip.scenario.yaml": TRIP})
    return tools / "descriptors" / "trips" / "goldens"


def ran(document, *words):
    return [report["scenario"] for report in document("run", *words, "--json")["scenarios"]]


def test_words_and_tags_choose_among_the_runs(trip, document):
    assert ran(document, "-k", "city=Oslo") == ["trip[city=Oslo,days=1]", "trip[city=Oslo,days=2]"]
    assert len(ran(document, "--tag", "travel")) == 4
    assert ran(document, "-k", "again") == ["again[1/2]", "again[2/2]"]


def test_repeat_and_seed_stand_in_for_those_of_the_scenarios(trip, document):
    run = document("run", "-k", "again or examples", "--repeat", "3", "--seed", "8", "--json")
    assert [(report["scenario"], report["seed"], report["run"]) for report in run["scenarios"]] == [
        *((f"echo examples[{number}/3]", 7 + number, number) for number in (1, 2, 3)),
        *((f"again[{number}/3]", 7 + number, number) for number in (1, 2, 3)),
    ]
    assert (run["runs"], run["of_scenarios"]) == (6, 2)


@pytest.mark.parametrize(
    ("words", "told"), [(["--repeat", "0"], "0 is not in the range"), (["--repeat", "500"], "2,000 runs")]
)
def test_a_number_of_runs_that_can_not_be_is_a_usage_error(trip, toolcrib, words, told):
    result = toolcrib("run", *words)
    assert result.exit_code == exit_codes.USAGE
    assert told in result.stderr


def test_the_summary_says_how_many_runs_of_how_many_scenarios(trip, toolcrib):
    lines = toolcrib("run", "--update").stdout.splitlines()
    assert lines[1] == "descriptors/trips/trip.scenario.yaml ......"
    assert "descriptors/trips  6 runs of 2 scenarios                        6 calls  ok" in lines
    assert lines[-1].startswith("7 passed: 7 runs of 3 scenarios in ")
    (trip / "Oslo-1.json").unlink()
    lines = toolcrib("run", "-k", "trip or again").stdout.splitlines()
    assert lines[-1].startswith("1 failed, 5 passed: 6 runs of 2 scenarios in ")
    assert "1 run failed: trip[city=Oslo,days=1]" in lines


def test_the_slowest_are_told_with_their_times(trip, toolcrib):
    lines = toolcrib("run", "--update", "--slowest", "2").stdout.splitlines()
    start = lines.index("slowest:")
    assert lines[start + 3] == ""
    assert all(" ms  " in line and ".yaml:" in line for line in lines[start + 1 : start + 3])


def written(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def test_update_writes_what_is_missing_and_what_differs(trip, toolcrib):
    result = toolcrib("run", "-k", "trip")
    assert result.exit_code == exit_codes.PROBLEMS
    assert (
        "missing golden file `goldens/Oslo-1.json`; run `toolcrib run --update` to write it" in result.stdout
    )
    assert not trip.exists()

    result = toolcrib("run", "--update")
    assert (result.exit_code, result.stderr) == (exit_codes.OK, "")
    assert [line for line in result.stdout.splitlines() if line.startswith("wrote")] == [
        f"wrote descriptors/trips/goldens/{name}"
        for name in ("Oslo-1.json", "Oslo-2.json", "Paris-1.json", "Paris-2.json")
    ]
    assert written(trip)["Paris-2.json"] == '"Paris 2"\n'

    (trip / "Paris-2.json").write_text('"Rome 2"', encoding="utf-8")
    (trip / "Oslo-1.json").write_text('  "Oslo 1"', encoding="utf-8")
    result = toolcrib("run")
    assert 'expected "Rome 2", got "Paris 2"' in result.stdout
    result = toolcrib("run", "--update", "--json")
    assert json.loads(result.stdout)["golden"] == [
        {"place": "descriptors/trips/goldens/Paris-2.json", "what": "updated", "failed": False}
    ]
    assert written(trip)["Oslo-1.json"] == '  "Oslo 1"'
    assert toolcrib("run").exit_code == exit_codes.OK


def test_goldens_in_a_scanned_folder_are_no_strangers(trip, toolcrib):
    toolcrib("run", "--update")
    result = toolcrib("validate", "--strict")
    assert (result.exit_code, result.stdout) == (
        exit_codes.OK,
        "3 tools, 0 packs, 2 scenarios: no problems\n",
    )


def test_runs_that_answer_differently_need_files_of_their_own(tools, write, toolcrib):
    text = TRIP.replace("goldens/{{ matrix.city }}-{{ matrix.days }}.json", "goldens/{{ matrix.city }}.json")
    write({"descriptors/trip.scenario.yaml": text})
    result = toolcrib("run", "--update")
    assert result.exit_code == exit_codes.PROBLEMS
    assert (
        "descriptors/goldens/Oslo.json: not written: `trip[city=Oslo,days=1]` and `trip[city=Oslo,days=2]` return "
        "different results; add what differs to the name of the file"
    ) in result.stdout
    assert not (tools / "descriptors" / "goldens").exists()


BIG = f"""
name: big
input_schema: {{}}
mock: {{result: ["{{{{ args.text }}}}", "{{{{ args.text }}}}"]}}
---
scenario: big
steps: [{{call: big, args: {{text: {"x" * 600_000}}}, expect: {{golden: big.json}}}}]
"""


def test_a_golden_that_could_not_be_read_again_is_not_written(tools, write, toolcrib):
    write({"descriptors/big.yaml": BIG})
    result = toolcrib("run", "--update", "-k", "big")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "descriptors/big.json: not written: the golden file exceeds 1,048,576 bytes" in result.stdout
    assert not (tools / "descriptors" / "big.json").exists()


def test_a_golden_of_a_pack_in_an_archive_is_not_written(write, toolcrib):
    folder = write({})
    with zipfile.ZipFile(folder / "p.zip", "w") as archive:
        archive.writestr("pack.yaml", "name: p\nversion: 1.0.0\n")
        archive.writestr("one.tool.yaml", "name: one\nmock: {result: 1}\n")
        scenario = "scenario: s\nsteps: [{call: one, expect: {golden: %s.json}}]\n"
        archive.writestr(
            "s.scenario.yaml", f"{scenario % 'new'}---\n{scenario % 'old'}".replace(": s", ": t", 1)
        )
        archive.writestr("old.json", "1\n")
    result = toolcrib("run", "p.zip", "--update")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "p.zip/new.json: cannot write `new.json`: its scenario is not in a folder" in result.stdout
    assert "p.zip/s.scenario.yaml ..\n" in result.stdout


def test_a_golden_that_can_not_be_written_is_told(trip, toolcrib):
    trip.write_text("in the way", encoding="utf-8")
    result = toolcrib("run", "--update", "-k", "city=Oslo")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "descriptors/trips/goldens/Oslo-1.json: not written: " in result.stdout


def test_a_golden_that_is_a_folder_is_left_as_it_is(trip, toolcrib):
    (trip / "Oslo-1.json").mkdir(parents=True)
    result = toolcrib("run", "--update", "-k", "city=Oslo")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "descriptors/trips/goldens/Oslo-1.json: not written: Is a directory" in result.stdout
    assert sorted(path.name for path in trip.iterdir()) == ["Oslo-1.json", "Oslo-2.json"]


def without_times(text):
    return [line for line in text.splitlines() if " virtual time" not in line]


def test_in_several_processes_everything_is_told_alike(trip, toolcrib, document):
    alone, together = toolcrib("run"), toolcrib("run", "-j", "2")
    assert without_times(together.stdout) == without_times(alone.stdout)
    assert (
        (together.exit_code, together.stderr) == (alone.exit_code, alone.stderr) == (exit_codes.PROBLEMS, "")
    )

    first, second = document("run", "--json"), document("run", "--json", "--jobs", "auto")
    for run in (first, second):
        assert run.pop("wall_time")["total"] > 0
    assert json.dumps(second) == json.dumps(first)


@pytest.mark.parametrize(
    ("spent", "done", "runs", "processes", "starts"),
    [
        (0.9, 9, 1_000_000, 8, False),  # nobody knows yet how long the rest takes
        (1.1, 10, 1_000, 2, True),
        (1.1, 10, 1_000, 1, False),  # there is nothing to spread it over
        (1.1, 1_000, 1_000, 8, False),  # nothing is left
        (10.0, 900, 1_000, 2, False),  # the rest takes 1.1 s, of which a second process saves half
        (10.0, 800, 1_000, 2, True),  # 2.5 s: it saves 1.25 s
        (10.0, 900, 1_000, 16, True),  # 1.1 s: fifteen others save 1.04 s
        (1.2, 1, 2, 2, False),
        (2.1, 1, 2, 2, True),
    ],
)
def test_auto_starts_processes_only_where_they_save_more_than_their_start(
    spent, done, runs, processes, starts
):
    assert others_pay_off(spent, done, runs, processes) is starts


@pytest.mark.exhaustive
def test_in_several_processes_golden_files_are_written_by_one(trip, toolcrib):
    result = toolcrib("run", "--update", "-j", "2")
    assert result.exit_code == exit_codes.OK
    assert sorted(written(trip)) == ["Oslo-1.json", "Oslo-2.json", "Paris-1.json", "Paris-2.json"]


@pytest.mark.exhaustive
def test_in_several_processes_the_first_failure_is_the_same_one(trip, document):
    assert (
        ran(document, "-j", "2", "--fail-fast")
        == ran(document, "--fail-fast")
        == [
            "echo examples",
            "trip[city=Oslo,days=1]",
        ]
    )
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("jobs", ["0", "-1", "many", "1.5"])
def test_a_number_of_processes_that_can_not_be_is_a_usage_error(trip, toolcrib, jobs):
    result = toolcrib("run", "-j", jobs)
    assert result.exit_code == exit_codes.USAGE
    assert f"`{jobs}` is not a number of processes; use 1 or more, or `auto`" in result.stderr


def test_at_a_terminal_the_bar_counts(trip, on_terminal):
    _out, err = on_terminal("run", "-k", "trip or again")
    assert "6/6" in err
    assert "100%" in err
    assert "2 passed, 4 failed" in err


def test_a_round_that_can_not_be_set_up_is_not_the_last(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file, elsewhere = tmp_path / "a.yaml", tmp_path.parent / f"{tmp_path.name}.yaml"
    rounds = iter([None, ConfigurationError("so it is"), KeyboardInterrupt()])

    def one_round():
        trail = FileTracker()
        for path in (file, elsewhere):
            trail.file(str(path))
        seen = trail.closed()
        file.write_text(f"{len(file.read_text()) if file.exists() else 0}", encoding="utf-8")
        elsewhere.write_text(file.read_text() * 2, encoding="utf-8")
        error = next(rounds)
        if error is not None:
            raise error
        return seen

    with pytest.raises(KeyboardInterrupt):
        run_on_changes(one_round)
    said = capsys.readouterr().err
    told = f"waiting for changes; press Ctrl-C to stop\n\nchanged: {elsewhere}, a.yaml\n"
    assert said == f"{told}so it is\n{told}"


def test_watching_and_updating_at_once_is_a_usage_error(trip, toolcrib):
    result = toolcrib("run", "--watch", "--update")
    assert result.exit_code == exit_codes.USAGE
    assert "use only one of them" in result.stderr


class Command:
    """A command that runs beside the test; what it says on stderr is read line by line."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "toolcrib", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def hear(self, text: str) -> list[str]:
        """Read stderr up to the line that holds a text."""
        lines = []
        while not lines or text not in lines[-1]:
            lines.append(self.process.stderr.readline())
            assert lines[-1], lines
        return lines

    def interrupted(self) -> tuple[int, str, str]:
        """The exit code after Ctrl-C, which reaches the whole session as at a terminal, and what else was said."""
        os.killpg(self.process.pid, signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.mark.parametrize("jobs", sample(["1", "2"], one_in=2))
def test_watch_runs_again_when_files_change_and_ends_with_ctrl_c(trip, tools, jobs):
    command = Command("run", "--watch", "-k", "again", "-j", jobs)
    command.hear("waiting for changes; press Ctrl-C to stop")
    scenario = Path("descriptors/trips/trip.scenario.yaml")
    scenario.write_text(TRIP.replace("repeat: 2", "repeat: 3"), encoding="utf-8")
    assert command.hear("changed: ")[-1] == "changed: descriptors/trips/trip.scenario.yaml\n"
    command.hear("waiting for changes")
    scenario.write_text("scenario: again\nstep: []\n", encoding="utf-8")
    told = "".join(command.hear("waiting for changes"))
    assert "did you mean `steps`" in told
    code, out, err = command.interrupted()
    assert (code, err) == (exit_codes.INTERRUPTED, "interrupted\n")
    assert [line.split()[1] for line in out.splitlines() if line.startswith("descriptors/trips/trip.")] == [
        "..",
        "...",
    ]


MANY = """
name: one
mock: {result: 1}
---
scenario: many
repeat: 1000
steps: [{call: one}, {call: one}, {call: one}, {call: one}, {call: one}, {call: one}, {call: one}, {call: one}]
"""


@pytest.mark.parametrize("jobs", sample(["1", "2"], one_in=2))
def test_ctrl_c_ends_a_run_and_every_process_of_it(tools, write, jobs):
    write({"descriptors/many.yaml": MANY})
    command = Command("run", "-k", "many", "-j", jobs)
    assert command.process.stdout.read(len("descriptors/many.yaml .")) == "descriptors/many.yaml ."
    code, out, err = command.interrupted()
    assert (code, err) == (exit_codes.INTERRUPTED, "interrupted\n")
    assert len(out) < 1000
