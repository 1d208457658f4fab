"""Comments that silence rules: `# lint: ignore[rule]` for a line, `# lint: ignore-file[rule]` for a file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.lint.rule import LintedTools, LintFinding, LintRule
from toolcrib.loading.documents.comments import comments_of

_IGNORE: Final = re.compile(r"#\s*lint:\s*ignore(?P<file>-file)?\b\s*(?:\[(?P<rules>[^\]]*)\])?")


class IgnoreComment:
    """One comment.

    Attributes:
        line: Its line.
        column: Its column.
        text: The part that is removed if it ignores nothing.
        concerns: The line that it is about; 0 for the whole file.
        rules: The rules that it names; empty for all.
        used: Those that it has silenced.
    """

    def __init__(self, line: int, column: int, text: str, concerns: int, rules: tuple[str, ...]) -> None:
        self.line = line
        self.column = column
        self.text = text
        self.concerns = concerns
        self.rules = rules
        self.used: set[str] = set()

    def silences(self, rule: str, line: int) -> bool:
        """Whether a finding in a line is silenced; remembers that it was."""
        if self.concerns not in {0, line} or (self.rules and rule not in self.rules):
            return False
        self.used.add(rule)
        return True

    @property
    def unused(self) -> tuple[str, ...]:
        """The rules that it names and did not silence."""
        return tuple(rule for rule in self.rules if rule not in self.used)


def ignore_comments(source: str, text: str) -> list[IgnoreComment]:
    """The comments of a file that silence rules."""
    if "lint:" not in text:
        return []
    found = []
    for comment in comments_of(source, text):
        match = _IGNORE.search(comment.text)
        if match is not None:
            rules = tuple(filter(None, (name.strip() for name in (match["rules"] or "").split(","))))
            concerns = 0 if match["file"] else comment.concerns
            column = comment.column + match.start()
            found.append(IgnoreComment(comment.line, column, match[0], concerns, rules))
    return found


def unused_problems(
    source: str, comments: Iterable[IgnoreComment], known: Collection[str], applied: Collection[str]
) -> Iterator[tuple[Problem, IgnoreComment, str]]:
    """Yield a problem for each comment that ignores nothing, the comment, and what should stand in its place.

    Args:
        source: The file.
        comments: Its comments, after they were asked about all findings.
        known: All rules.
        applied: The rules that were applied; nothing can be said about the others.
    """
    for comment in comments:
        unknown = [rule for rule in comment.rules if rule not in known]
        idle = [rule for rule in comment.unused if rule in applied]
        if comment.rules:
            needless = {*unknown, *idle}
        else:
            # A bare comment may be about any rule.
            needless = {""} if not comment.used and set(known) <= set(applied) else set()
        if not needless:
            continue
        rest = [rule for rule in comment.rules if rule not in needless]
        where = "-file" if not comment.concerns else ""
        listed = ", ".join(f"`{rule}`" for rule in sorted(needless) if rule)
        message = f"the comment ignores nothing{f' of {listed}' if listed else ''}"
        if unknown:
            message = f"the comment ignores the unknown rule {', '.join(f'`{rule}`' for rule in unknown)}"
        yield (
            Problem(
                code=UNUSED.name,
                message=message,
                hint=did_you_mean(unknown[0], known) if unknown else "`--fix` removes it",
                severity=UNUSED.severity,
                source=source,
                line=comment.line,
                column=comment.column,
            ),
            comment,
            f"# lint: ignore{where}[{', '.join(rest)}]" if rest else "",
        )


def _nothing(_linted: LintedTools) -> Iterator[LintFinding]:
    # What a comment ignores is known when all other rules were applied.
    return iter(())


UNUSED: Final = LintRule(
    "unused-ignore",
    "warning",
    "A comment `# lint: ignore` ignores nothing, or names an unknown rule.",
    "It would hide the next finding in its line, which nobody has seen.",
    _nothing,
    bad="""\
name: find_stop # lint: ignore[generic-name]
description: Stops of buses near an address.
annotations: {read_only: true}
""",
    good="""\
name: find_stop
description: Stops of buses near an address.
annotations: {read_only: true}
""",
    fix="removes the comment, or the rules that it names needlessly",
)
"""The rule about these comments."""
