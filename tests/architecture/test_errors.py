"""The tree of errors, the closed set of outcomes, and the page that lists problems."""

from __future__ import annotations

import re

import pytest

from toolcrib.core import errors
from toolcrib.core.model import Outcome, Result


def drawn() -> dict[str, str]:
    """Class -> its parent, as the docstring of `errors` draws them."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^(\s*(?:[│├└─]+\s*)*)(\w+)\s{2,}", line)
        if not found:
            continue
        depth, name = len(found[1]), found[2]
        path = [(there, parent) for there, parent in path if there < depth]
        parents[name] = path[-1][1] if path else "Exception"
        path.append((depth, name))
    return parents


def real() -> dict[str, str]:
    """Class -> its parent, of all errors of the module."""
    classes = [
        thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)
    ]
    return {cls.__name__: cls.__base__.__name__ for cls in classes}


def test_the_tree_at_the_top_of_the_file_is_the_real_one():
    assert drawn() == real()


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_every_outcome_but_ok_has_an_error_class_that_its_result_raises(outcome):
    result = Result.failure(outcome, "it went wrong")
    with pytest.raises(errors.error_for(outcome)) as raised:
        result.raise_for_outcome()
    assert raised.value.result is result
    assert raised.value.outcome == outcome.value
    assert raised.value.code == outcome.value


def test_the_drawing_names_the_outcome_of_each_class():
    told = dict(re.findall(r"── (\w+)\s+(\w+)$", errors.__doc__, re.MULTILINE))
    assert told == {cls.__name__: cls.outcome for cls in errors.CallError.__subclasses__()}


def test_ok_has_no_error_class():
    assert Result.success(1).raise_for_outcome().value == 1
    with pytest.raises(KeyError):
        errors.error_for("ok")
