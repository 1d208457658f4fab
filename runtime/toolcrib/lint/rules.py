"""All rules, by name."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

from toolcrib.lint import descriptions, parameters, similar_tools, tools
from toolcrib.lint.ignore_comments import UNUSED
from toolcrib.lint.rule import LintRule

RULES: Final[Mapping[str, LintRule]] = MappingProxyType(
    {
        rule.name: rule
        for rule in chain(descriptions.RULES, parameters.RULES, tools.RULES, similar_tools.RULES, [UNUSED])
    }
)
"""Name -> rule, in the order of the reference."""
