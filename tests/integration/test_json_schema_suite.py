"""The official JSON Schema test suite: what is required of 2020-12 and of draft 7, without one wrong verdict.

The suite's files are those in the source distribution of jsonschema, which pip downloads once into
pytest's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from sampling import sample
from toolcrib.schema.coercion import coerce
from toolcrib.schema.dereference import dereference
from toolcrib.schema.validation import Validator, check_schema, compile_defaults

RELEASE = "jsonschema-4.26.0"
SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"

DIALECTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}

OLDER = {
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
"""The other dialects: what is made of their schemas must mean the same."""

pytestmark = pytest.mark.xdist_group("json_schema_suite")
"""One worker downloads the suite and uses it."""


def download(folder: Path) -> Path:
    """The source distribution, from the index that pip is set up to use."""
    requirement = RELEASE.replace("-", "==")
    options = ["--no-deps", "--no-binary", "jsonschema", "--dest", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    archive = folder / f"{RELEASE}.tar.gz"
    if not archive.is_file():
        pytest.fail(f"pip could not download the source distribution of {requirement}:\n{done.stderr}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert found == SHA256, f"{archive.name} is another file than the one that was published"
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of the suite: its `tests` and `remotes`."""
    with tarfile.open(archive) as held:
        for member in held:
            if member.isfile() and member.name.startswith(
                (f"{RELEASE}/json/tests/", f"{RELEASE}/json/remotes/")
            ):
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(held.extractfile(member).read())


@pytest.fixture(scope="session")
def suite(pytestconfig, tmp_path_factory) -> Path:
    """The folder of the suite."""
    try:
        cached = pytestconfig.cache.mkdir("json-schema-suite") / RELEASE
    except OSError:  # a read-only checkout
        cached = tmp_path_factory.mktemp("json-schema-suite") / RELEASE
    if not cached.is_dir():
        with tempfile.TemporaryDirectory(dir=cached.parent) as made:
            unpack(download(Path(made)), Path(made))
            (Path(made) / RELEASE).replace(cached)
    return cached / "json"


def remotes(suite: Path, draft: str) -> dict[str, object]:
    """The documents that schemas of the suite refer to, by their URI."""
    folder = suite / "remotes"
    paths = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.json"))]
    mine = [path for path in paths if not path.startswith("draft") or path.startswith(f"{draft}/")]
    return {f"http://localhost:1234/{path}": json.loads((folder / path).read_bytes()) for path in mine}


class Case(NamedTuple):
    """A value, the schema that judges it, its validator, and the verdict."""

    name: str
    schema: object
    validator: Validator
    value: object
    valid: bool


def cases(suite: Path, draft: str) -> Iterator[Case]:
    """The required cases of a draft. A schema that names no dialect is given the draft's."""
    dialect = (DIALECTS | OLDER)[draft]
    table = remotes(suite, draft)
    for path in sorted((suite / "tests" / draft).glob("*.json")):
        for group in json.loads(path.read_bytes()):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": dialect, **schema}
            validator = Validator(schema, remotes=table)
            for test in group["tests"]:
                name = f"{path.name}: {group['description']}: {test['description']}"
                yield Case(name, schema, validator, test["data"], test["valid"])


def by_schema(suite: Path, draft: str) -> Iterator[tuple[object, list[Case]]]:
    """The required cases of a draft, those of one schema together: to compile a schema takes longer than to judge values."""
    for _, judged in groupby(cases(suite, draft), key=lambda case: id(case.validator)):
        together = [*judged]
        yield together[0].schema, together


@pytest.mark.parametrize(("draft", "least"), sample([("draft2020-12", 1200), ("draft7", 900)]))
def test_every_verdict_on_the_required_cases_is_right(suite, draft, least):
    judged = [(case, not case.validator.faults(case.value)) for case in cases(suite, draft)]
    wrong = [case.name for case, valid in judged if valid is not case.valid]
    print(f"{draft}: {len(judged)} required cases, {len(wrong)} wrong")  # noqa: T201 -- the number belongs in the report
    assert wrong == []
    assert len(judged) > least


@pytest.mark.parametrize("draft", sample(DIALECTS, one_in=2))
def test_is_valid_and_faults_agree_and_faults_are_short(suite, draft):
    for case in cases(suite, draft):
        faults = case.validator.faults(case.value)
        assert case.validator.is_valid(case.value) is not bool(faults), case.name
        assert all(len(fault.for_model()) < 1000 for fault in faults), case.name


@pytest.mark.parametrize("draft", sample(DIALECTS, one_in=2))
def test_the_check_refuses_no_schema_of_the_suite_but_those_that_need_other_documents(suite, draft):
    for schema, judged in by_schema(suite, draft):
        refused = {problem.code for problem in check_schema(schema) if problem.severity == "error"}
        assert refused <= {"remote_ref", "unknown_dialect"}, judged[0].name


@pytest.mark.parametrize("draft", sample(DIALECTS, one_in=2))
def test_repairs_leave_what_is_valid_and_end_in_what_is_valid(suite, draft):
    for case in cases(suite, draft):
        repaired, repairs = coerce(case.schema, case.validator, case.value, "lenient")
        assert bool(repairs) == (repaired is not case.value), case.name
        assert case.validator.is_valid(repaired) if repairs else repaired is case.value, case.name
        assert not (case.valid and repairs), case.name


@pytest.mark.parametrize("draft", DIALECTS)
def test_defaults_are_filled_in_once(suite, draft):
    for schema, judged in by_schema(suite, draft):
        fill = compile_defaults(schema)
        for case in judged if fill is not None else ():
            filled = fill(case.value)
            assert fill(filled) is filled, case.name


@pytest.mark.parametrize("draft", sample([*DIALECTS, *OLDER], one_in=8))
def test_verdicts_without_references_are_the_same(suite, draft):
    table = remotes(suite, draft)
    left = set()
    for schema, judged in by_schema(suite, draft):
        if isinstance(schema, dict):
            inlined = dereference(schema)
            dereferenced = Validator(inlined.schema, remotes=table)
            recursive = any("refers to itself" in remark for remark in inlined.remarks)
            for case in judged:
                before, after = (
                    not validator.faults(case.value) for validator in (case.validator, dereferenced)
                )
                assert after or not before if recursive else after is before, case.name
            if any("refers to itself" not in remark for remark in inlined.remarks):
                left.add(judged[0].name.partition(":")[0])
    # These refer to other documents, to meta-schemas, or by dynamic references to what depends on the way.
    others = {
        "definitions.json",
        "defs.json",
        "dynamicRef.json",
        "recursiveRef.json",
        "ref.json",
        "refRemote.json",
    }
    assert left <= others | {"unevaluatedItems.json", "unevaluatedProperties.json"}
