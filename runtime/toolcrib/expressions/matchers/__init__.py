"""Matchers: patterns that look like the data they accept, compiled once.

A plain value stands for itself (JSON equality), an object for all objects that hold its keys, a list for
lists of the same length, item by item. An object whose keys all begin with `$` holds operators, and all of
them must hold. An absent key is `ABSENT` to the pattern that stands there: only `$exists: false`, `$not`
and `$ne` accept that.
"""

from toolcrib.core.text import json_equal
from toolcrib.expressions.matchers.matcher import Matcher, compile_matcher
from toolcrib.expressions.matchers.nodes import ABSENT, Difference
from toolcrib.expressions.matchers.reachability import impossible

__all__ = ["ABSENT", "Difference", "Matcher", "compile_matcher", "impossible", "json_equal"]
