"""Translate the Go templates of PromptKit to our templates over `args`.

The subset: `{{.x}}`, `{{.a.b}}`, `if`/`else if`/`else`, `range`, `toJson`, `index`, `len`, `printf` with
`%s %d %v`, the comparisons `eq ne lt le gt ge`, `and or not`, pipelines, comments and `{{- -}}`.
Everything else is refused with its line.

PromptKit executes the templates of mocks with `missingkey=zero`, so a missing key is printed as `<no value>`,
is false in a condition and null for `toJson`, and `range` skips it. Go fails for a missing key in `len`,
`index`, `lt`, `gt` and so on. Here its length is 0, its elements are missing, and the comparison is false. In
other texts, such as a URL, printing a missing key is an error. As in all our templates, one newline at the
end is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, NoReturn

from toolcrib.core.errors import ExpressionError

LENGTH = 16 * 1024
"""Maximum length of a template in characters, as for our own."""

NESTING = 50
"""Maximum nesting of parentheses, and of `if` and `range`."""

NO_VALUE: Final = "<no value>"
"""Output of PromptKit for a missing argument."""

_COMMENT = re.compile(r"(?:-\s)?\s*+/\*(?:[^*]|\*(?!/))*+\*/")
# Possessive quantifiers: an action that is not closed fails in one pass, without backtracking.
_BODY = re.compile(r"""(?:"(?:\\.|[^"\\\n])*+"|`[^`]*+`|(?!\}\})[^"`])*+""")
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:\\.|[^"\\])*"|`[^`]*`)
      | (?P<number>-?\d+(?:\.\d+)?)
      | (?P<path>\$?(?:\.[A-Za-z_]\w*)+|\$[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|\.|\$)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<mark>:=|[(),|])
    )""",
    re.VERBOSE,
)
_OPENERS = re.compile(r"\{[%#]")
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ORDERINGS = frozenset({"lt", "le", "gt", "ge"})
_ASKING = frozenset({*_COMPARISONS, "and", "or", "not"})
_ABSENT_IN_FORM = {"%s": "%!s(<nil>)", "%d": "%!d(<nil>)", "%v": "<nil>"}
"""Verb of `printf` -> Go's output for a missing value."""

_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}

Token = tuple[str, str]


class GoTranslation(NamedTuple):
    """A translated Go template.

    Attributes:
        text: Our template.
        arguments: Name of an argument that it uses -> line of its first use.
    """

    text: str
    arguments: Mapping[str, int]


def translate(text: str, *, lenient: bool = False, present: Collection[str] = ()) -> GoTranslation:
    """Translate a Go template.

    Args:
        text: The Go template.
        lenient: Whether a missing argument may be printed, as in a PromptKit mock; otherwise that is an error.
        present: Arguments that are always present and never null; they need no check, which makes printing faster.

    Raises:
        ExpressionError: `go_template`, with the line of the construct that is not in the subset.
    """
    translation = _Translation(text, lenient=lenient, present=present)
    return GoTranslation(translation.result(), translation.arguments)


class _If:
    # Needed to refuse a second `else`, which our engine would report without the line of the Go template.

    def __init__(self) -> None:
        self.has_else = False


class _Loop:
    """A `range`: the names of the element, its variable and its index variable."""

    def __init__(self, element: str, variable: str = "", index: str = "") -> None:
        self.element = element
        self.variable = variable
        self.index = index


class _Translation:
    def __init__(self, text: str, *, lenient: bool, present: Collection[str]) -> None:
        self.arguments: dict[str, int] = {}
        self._text = text
        self._lenient = lenient
        self._present = frozenset(f"args.{name}" for name in present)
        self._line = 1
        self._open: list[_If | _Loop] = []
        self._loops = 0
        self._parentheses = 0

    def result(self) -> str:
        text = self._text
        if len(text) > LENGTH:
            self._refuse(f"{len(text):,} characters exceed the limit of {LENGTH:,}")
        pieces, at = [], 0
        while (start := text.find("{{", at)) >= 0:
            pieces.append(_plain(text[at:start]))
            self._line += text.count("\n", at, start)
            at = self._end_of_action(start + 2)
            pieces.append(self._action(text[start + 2 : at]))
            self._line += text.count("\n", start, at)
            at += 2
        pieces.append(_plain(text[at:]))
        if self._open:
            self._line = text.count("\n") + 1
            self._refuse("missing `end`")
        return "".join(pieces)

    def _end_of_action(self, start: int) -> int:
        """The position of the `}}` that closes a `{{`, outside of strings and comments."""
        comment = _COMMENT.match(self._text, start)
        body = _BODY.match(self._text, start if comment is None else comment.end())
        if body is None or not self._text.startswith("}}", body.end()):
            self._refuse("`{{` is not closed")
        return body.end()

    def _refuse(self, what: str) -> NoReturn:
        hint = (
            "use {{.x}}, if, range, toJson, index, len, printf, comparisons, and, or, not; or use `template`"
        )
        raise ExpressionError(f"line {self._line} of the Go template: {what}", code="go_template", hint=hint)

    def _action(self, body: str) -> str:
        # Go trims only if a space separates the `-` from the expression; `{{-3}}` is a number.
        left = "-" if re.match(r"-\s", body) else ""
        right = "-" if re.search(r"\s-\Z", body) else ""
        body = body[len(left) : len(body) - len(right)].strip()
        if body.startswith("/*") and body.endswith("*/"):
            return f"{{#{left} {right}#}}"
        word, rest = _first_word(body)
        statement = _STATEMENTS.get(word)
        if statement is not None:
            return f"{{%{left} {statement(self, rest)} {right}%}}"
        printed = self._pipeline(body, asking=self._lenient)
        if self._lenient and printed not in self._present:
            printed = f"({printed}) | default({literal(NO_VALUE)})"
        return f"{{{{{left} {printed} {right}}}}}"

    def _enter(self, block: _If | _Loop) -> None:
        if len(self._open) == NESTING:
            self._refuse(f"the nesting of `if` and `range` exceeds {NESTING} levels")
        self._open.append(block)

    def _if(self, rest: str) -> str:
        self._enter(_If())
        return f"if {self._pipeline(rest, asking=True)}"

    def _else(self, rest: str) -> str:
        if not self._open:
            self._refuse("`else` without `if`")
        opened = self._open[-1]
        if isinstance(opened, _Loop):
            self._refuse("`else` in a `range` is not supported")
        if opened.has_else:
            self._refuse("duplicate `else`")
        # More branches may follow an `else if`.
        opened.has_else = not rest
        if not rest:
            return "else"
        word, condition = _first_word(rest)
        if word != "if":
            self._refuse(f"`else {rest}` is not supported")
        return f"elif {self._pipeline(condition, asking=True)}"

    def _end(self, rest: str) -> str:
        if rest:
            self._refuse(f"`end {rest}` is not supported")
        if not self._open:
            self._refuse("`end` without `if` or `range`")
        return "endif" if isinstance(self._open.pop(), _If) else "endfor"

    def _range(self, rest: str) -> str:
        names, assigned, source = rest.rpartition(":=")
        variables = [name.strip() for name in names.split(",")] if assigned else []
        if len(variables) > 2 or not all(re.fullmatch(r"\$[A-Za-z_]\w*", name) for name in variables):
            self._refuse(f"`range {rest}` is not supported")
        listed = self._pipeline(source, asking=True)
        self._loops += 1
        # Every loop has its own name: our inner loops would otherwise hide the element of an outer one.
        element = f"item_{self._loops}"
        index = variables[0] if len(variables) == 2 else ""
        self._enter(_Loop(element, variables[-1] if variables else "", index))
        # Go skips a missing or empty list; our `for` fails for null.
        return f"for {element} in ({listed} or [])"

    def _pipeline(self, source: str, *, asking: bool) -> str:
        tokens = self._tokens(source)
        expression = self._commands(tokens, asking=asking)
        if tokens:
            self._refuse(f"unexpected `{tokens[0][1]}` in `{source}`")
        return expression

    def _tokens(self, source: str) -> list[Token]:
        tokens, at = [], 0
        source = source.rstrip()
        while at < len(source):
            match = _TOKEN.match(source, at)
            if match is None or match.lastgroup is None:
                self._refuse(f"`{source[at:].strip()}` is not supported")
            tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return tokens

    def _commands(self, tokens: list[Token], *, asking: bool) -> str:
        expression = self._command(tokens, [], asking=asking)
        while tokens[:1] == [("mark", "|")]:
            del tokens[0]
            expression = self._command(tokens, [expression], asking=asking)
        return expression

    def _command(self, tokens: list[Token], piped: list[str], *, asking: bool) -> str:
        if not tokens:
            self._refuse("missing expression")
        kind, text = tokens[0]
        if kind != "word" or text in {"true", "false", "nil"}:
            if piped:
                self._refuse(f"`{text}` does not accept a piped value")
            return self._operand(tokens, asking=asking)
        del tokens[0]
        asking = asking or text in _ASKING
        arguments = []
        while tokens and tokens[0] not in {("mark", "|"), ("mark", ")")}:
            arguments.append(self._operand(tokens, asking=asking))
        made = self._function(text, [*arguments, *piped])
        # A pipeline can repeat its argument at each step, so a short template can become exponentially long.
        if len(made) > LENGTH:
            self._refuse(f"the expression of `{text}` exceeds {LENGTH:,} characters")
        return made

    def _operand(self, tokens: list[Token], *, asking: bool) -> str:
        kind, text = tokens.pop(0)
        if kind == "text":
            return self._quoted(text)
        if kind == "number":
            return text
        if kind == "path":
            return self._path(text, asking=asking)
        if (kind, text) == ("mark", "("):
            self._parentheses += 1
            if self._parentheses > NESTING:
                self._refuse(f"the nesting of parentheses exceeds {NESTING} levels")
            inner = self._commands(tokens, asking=asking)
            self._parentheses -= 1
            if tokens[:1] != [("mark", ")")]:
                self._refuse("missing `)`")
            del tokens[0]
            return f"({inner})"
        if text in {"true", "false", "nil"}:
            return "none" if text == "nil" else text
        return self._refuse(f"unexpected `{text}`")

    def _quoted(self, text: str) -> str:
        value = text[1:-1]
        if text.startswith('"'):
            value = re.sub(r"\\(.)", lambda match: self._escape(match[1]), value)
        return literal(value)

    def _escape(self, mark: str) -> str:
        if mark not in _ESCAPES:
            self._refuse(f"the escape `\\{mark}` is not supported")
        return _ESCAPES[mark]

    def _path(self, text: str, *, asking: bool) -> str:
        first, *names = text.split(".")
        names = [name for name in names if name]
        root = self._root(first)
        if root == "args" and names:
            self.arguments.setdefault(names[0], self._line)
        path = ".".join([root, *names])
        if not asking or path in self._present:
            return path
        # In a condition, each step must tolerate a missing or null parent.
        for name in names:
            root = f"{root if root == 'args' else f'({root} or {{}})'}[{literal(name)}]"
        return root

    def _root(self, first: str) -> str:
        loops = [opened for opened in self._open if isinstance(opened, _Loop)]
        if first == "":
            return loops[-1].element if loops else "args"
        if first == "$":
            return "args"
        for loop in reversed(loops):
            if first == loop.variable:
                return loop.element
            if first == loop.index:
                if loop is not loops[-1]:
                    self._refuse(f"`{first}` is the index of an outer `range`, which cannot be used here")
                return "loop.index0"
        return self._refuse(f"unknown variable `{first}`")

    def _function(self, name: str, arguments: list[str]) -> str:
        if name in _COMPARISONS and len(arguments) == 2:
            compared = f"{arguments[0]} {_COMPARISONS[name]} {arguments[1]}"
            # Our comparison of null with a number is an error. Here it must be false.
            known = [f"{each} is not none" for each in arguments if name in _ORDERINGS and self._lenient]
            return "(" + " and ".join([*known, compared]) + ")"
        # `eq` of Go compares its first argument with each of the others.
        if name == "eq" and len(arguments) > 2:
            first, *others = arguments
            return f"({first} in [{', '.join(others)}])"
        if name in {"and", "or"} and len(arguments) > 1:
            return "(" + f" {name} ".join(arguments) + ")"
        if name == "not" and len(arguments) == 1:
            return f"(not {arguments[0]})"
        if name == "len" and len(arguments) == 1:
            return f"(({arguments[0]} or []) | length)" if self._lenient else f"({arguments[0]} | length)"
        if name == "toJson" and len(arguments) == 1:
            return f"({arguments[0]} | tojson)"
        if name == "index" and len(arguments) > 1:
            return self._index(arguments[0], arguments[1:])
        if name == "printf" and arguments:
            return self._printf(arguments[0], arguments[1:])
        return self._refuse(
            f"`{name}` with {len(arguments)} argument{'s' if len(arguments) != 1 else ''} is not supported"
        )

    def _index(self, value: str, keys: list[str]) -> str:
        # `{{index . "name"}}` uses an argument as well.
        if value == "args" and keys[0].startswith("'"):
            self.arguments.setdefault(keys[0][1:-1], self._line)
        for key in keys:
            if not self._lenient:
                value = f"{value}[{key}]"
            elif key.isdecimal() or key.startswith("'"):
                value = f"({value} or {'[]' if key.isdecimal() else '{}'})[{key}]"
            else:
                # The type of the key is known only at run time.
                empty = f"({{}} if {key} is string else [])"
                value = f"(({value} or {empty})[{key}] if {key} is not none else none)"
        return value

    def _printf(self, form: str, values: list[str]) -> str:
        if not form.startswith("'"):
            self._refuse("the format of `printf` must be a string literal")
        left = list(values)
        pieces = []
        for piece in re.findall(r"%.?|[^%]+", form[1:-1]):
            if piece in _ABSENT_IN_FORM and left:
                value = left.pop(0)
                absent = literal(_ABSENT_IN_FORM[piece])
                pieces.append(f"(({value}) | default({absent}))" if self._lenient else value)
            elif piece == "%%":
                pieces.append("'%'")
            elif piece.startswith("%"):
                self._refuse(f"`{piece}` of `printf` is not supported or has no value")
            else:
                pieces.append(f"'{piece}'")
        if left:
            self._refuse("`printf` has more values than verbs")
        return "(" + " ~ ".join(pieces or ["''"]) + ")"


_STATEMENTS: dict[str, Callable[[_Translation, str], str]] = {
    "if": _Translation._if,  # noqa: SLF001 -- the class's own table
    "else": _Translation._else,  # noqa: SLF001
    "end": _Translation._end,  # noqa: SLF001
    "range": _Translation._range,  # noqa: SLF001
}


def _plain(text: str) -> str:
    """The text between actions, escaped so that it has no meaning in our templates."""
    # `{%` and `{#` are plain text in Go, but open a statement or a comment in ours.
    return _OPENERS.sub(lambda match: f"{{{{ '{match[0]}' }}}}", text)


def _first_word(text: str) -> tuple[str, str]:
    """The word at the beginning of a text, and the rest without surrounding spaces."""
    match = re.match(r"[A-Za-z_]\w*", text)
    word = match[0] if match is not None else ""
    return word, text[len(word) :].strip()


def literal(text: str) -> str:
    """A string literal of our expressions."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"'{escaped}'"
