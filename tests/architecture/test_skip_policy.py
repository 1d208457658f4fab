"""CI skips nothing, save what needs the data that lies beside a checkout."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import settings

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SKIPPED = """
    import pytest

    def test_that_gives_up():
        pytest.skip("no reason at all")
"""

SHARED = """
    def test_with_data(shared_data):
        assert shared_data.is_dir()
"""


@pytest.fixture
def inner(pytester, monkeypatch):
    """A test folder with our conftest, run as CI runs it."""
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers =\n    exhaustive: everything\n    shared_data: needs data\n")
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("TOOLCRIB_SHARED_DATA", str(pytester.path / "data"))
    profile = settings.get_current_profile_name()
    yield pytester
    settings.load_profile(profile)  # the conftest of an inner run chooses one for this process, too


def test_a_skipped_test_fails_in_ci(inner):
    inner.makepyfile(SKIPPED)
    result = inner.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*CI skips nothing: *no reason at all*"])


def test_a_skipped_module_fails_in_ci(inner):
    inner.makepyfile("import pytest\npytest.skip('not today', allow_module_level=True)")
    inner.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(errors=1)


def test_a_skipped_test_is_only_skipped_elsewhere(inner, monkeypatch):
    monkeypatch.setenv("CI", "")
    inner.makepyfile(SKIPPED)
    inner.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(skipped=1)


def test_a_test_of_shared_data_is_skipped_where_there_is_none(inner):
    inner.makepyfile(SHARED)
    result = inner.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["1 tests skipped"])


def test_a_test_of_shared_data_runs_where_there_is_some(inner):
    inner.mkdir("data")
    inner.makepyfile(SHARED)
    inner.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


EXHAUSTIVE = """
    import pytest

    @pytest.mark.exhaustive
    def test_every_one():
        pass

    def test_some():
        pass
"""


def test_exhaustive_tests_are_deselected_and_not_skipped(inner, monkeypatch):
    monkeypatch.delenv("EXHAUSTIVE_TESTS", raising=False)
    inner.makepyfile(EXHAUSTIVE)
    inner.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1, deselected=1)


SAMPLED = """
    from sampling import THOROUGH, sample

    def test_everything_is_run():
        assert THOROUGH
        assert sample([1, 2, 3]) == [1, 2, 3]
"""


def test_a_conftest_that_is_read_first_takes_no_sample(inner, monkeypatch):
    # pytest reads the conftest modules of a folder that it is given before it tells any of them its options.
    monkeypatch.delenv("EXHAUSTIVE_TESTS", raising=False)
    folder = inner.mkdir("docs")
    (folder / "conftest.py").write_text("import sampling\n", encoding="utf-8")
    (folder / "test_sampled.py").write_text(dedent(SAMPLED), encoding="utf-8")
    tests = CONFTEST.parent
    ran = inner.runpytest_subprocess(
        "-p", "no:cacheprovider", "-o", f"pythonpath={tests}", "--exhaustive", "docs"
    )
    ran.assert_outcomes(passed=1)


def test_exhaustive_tests_run_when_everything_is_asked_for(inner, monkeypatch):
    monkeypatch.setenv("EXHAUSTIVE_TESTS", "1")
    inner.makepyfile(EXHAUSTIVE)
    inner.runpytest_inprocess("-p", "no:cacheprovider", "--exhaustive").assert_outcomes(passed=2)
