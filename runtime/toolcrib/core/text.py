"""JSON values and results as text, for models, digests and terminals; JSON texts as values."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from toolcrib.core.model import JSON, Content, Outcome, Result

MODEL_LIMIT = 65536
"""Bytes of a result that a model is shown unless somebody says otherwise."""

_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_CANONICAL = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=True)

SIZE_PATTERN = r"^[1-9][0-9]{0,8} ?(B|kB|KB|MB|KiB|MiB)?$"
"""How documents write a size: `32KiB`, `8 MiB`, `500 kB`, `1024`. The schemas of documents repeat it."""

_UNITS = {"": 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "KiB": 1024, "MiB": 1024**2}
_SIZE = re.compile(r"(\d+) ?(\D*)")

_ENDS = (". ", "! ", "? ", "。")
_ABBREVIATIONS = ("e.g", "i.e")

# Controls but newline and tab, marks that turn the direction of text, line separators, lone surrogates, tags.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


_LONGEST_KEY: Final = 60
"""Characters of a key that a message names. A longer one is not named: a cut secret is not recognized as one."""


class DuplicateKey(ValueError):
    """An object of a JSON text has a key twice, so that readers disagree on what it says (RFC 8259 section 4)."""


class NotFinite(ValueError):
    """`NaN` or `Infinity` stands where JSON has a number."""


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of a JSON object: an `object_pairs_hook`.

    Raises:
        DuplicateKey: A key is there twice.
    """
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    names: set[str] = set()
    for name, _value in pairs:
        if name in names:
            break
        names.add(name)
    shown = f" `{escape_terminal(name)}`" if len(name) <= _LONGEST_KEY else ""
    raise DuplicateKey(f"duplicate key{shown} in one object")


def _refuse_constant(name: str) -> NoReturn:
    raise NotFinite(f"`{name}` is not a valid JSON number")


# The hook costs 3 ms for 1 MB of ordinary rows (11 ms instead of 8), and 15 ms where every object has one member.
JSON_DECODER: Final = json.JSONDecoder(object_pairs_hook=unique_members, parse_constant=_refuse_constant)
"""Reads JSON that comes from somebody else: what `decode_json` refuses, it refuses."""


def decode_json(text: str | bytes) -> JSON:
    """The value of a JSON text (RFC 8259) that comes from somebody else.

    Args:
        text: Bytes are UTF-8, UTF-16 or UTF-32.

    Raises:
        DuplicateKey: An object has a key twice.
        NotFinite: It holds `NaN` or `Infinity`.
        ValueError: It is no JSON, or holds a number of more than 4,300 digits.
        RecursionError: It is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    value: JSON = JSON_DECODER.decode(text)
    return value


def json_equal(left: object, right: object) -> bool:
    """JSON equality: numbers by value, `true` is not 1, the order of keys is free."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(json_equal(item, right[key]) for key, item in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(json_equal, left, right))
    return left is right or (left == right and isinstance(left, bool) is isinstance(right, bool))


def parse_size(written: str | int) -> int:
    """The bytes of a size that fits `SIZE_PATTERN`, or is a number of bytes already; JSON Schema takes 1e3 for an integer."""
    if not isinstance(written, str):
        return int(written)
    number, unit = _SIZE.findall(written)[0]
    return int(number) * _UNITS[unit]


def format_size(size: int) -> str:
    """A number of bytes as documents write it: `4MiB`, `500kB`, `1025B`."""
    for unit in ("MiB", "KiB", "MB", "kB"):
        if size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size}B"


def compact(value: JSON) -> str:
    """The value as JSON without blanks, in its own key order.

    Raises:
        ValueError: A number is not finite, a text holds a lone surrogate, or the nesting is too deep.
        TypeError: Something in it is no JSON value.
    """
    return _encode(_COMPACT, value)


def canonical(value: JSON) -> str:
    """The value as JSON without blanks and with sorted keys: equal texts for equal documents.

    Raises:
        ValueError: As `compact` does.
        TypeError: As `compact` does.
    """
    return _encode(_CANONICAL, value)


def _encode(encoder: json.JSONEncoder, value: JSON) -> str:
    try:
        text = encoder.encode(value)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        raise ValueError(
            f"the text contains the lone surrogate `\\u{code:04x}` and cannot be written as JSON"
        ) from None
    except RecursionError:
        raise ValueError("the value is nested too deeply to be written as JSON") from None
    return text


def text_for_model(result: Result, limit: int = MODEL_LIMIT) -> str:
    """What a model reads of a result, in at most `limit` bytes of UTF-8.

    A text is given as it is, any other value as compact JSON; parts follow, one a line, without those that
    only repeat the value. A failed call gives its message, led by the code where the code says more.
    """
    lead = _lead(result)
    parts = [part_text(part) for part in result.content if not _repeats(part, result, lead)]
    return truncate("\n".join([lead, *parts] if lead or not parts else parts), limit)


def _lead(result: Result) -> str:
    if result.outcome is Outcome.OK:
        if isinstance(result.value, str):
            return result.value
        return "" if result.value is None and result.content else compact(result.value)
    code = result.error.code if result.error is not None else result.outcome.value
    if not result.message:
        return code
    plain = code == result.outcome.value or code in result.message
    return result.message if plain else f"{code}: {result.message}"


def _repeats(part: Content, result: Result, lead: str) -> bool:
    if part.type != "text" or part.text is None:
        return False
    if result.outcome is not Outcome.OK:
        return part.text == result.message
    if part.text == lead:
        return True
    if not part.text.lstrip().startswith(("{", "[")):
        return False
    try:
        return canonical(decode_json(part.text)) == canonical(result.value)
    except (ValueError, RecursionError):
        return False


def part_text(part: Content) -> str:
    """The text of a part, or what it is: `[image image/png a title]`."""
    if part.text is not None:
        return part.text
    return "[" + " ".join(word for word in (part.type, part.mime_type, part.title, part.uri) if word) + "]"


def truncate(text: str, limit: int) -> str:
    """The text in at most `limit` bytes of UTF-8; what is cut ends with a note that says how much was shown.

    A character is never split. Where not even the note fits, the text is cut without one.
    """
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return text
    room = limit - len(_note(len(raw), len(raw)).encode())
    if room < 0:
        return raw[: max(limit, 0)].decode(errors="ignore")
    shown = raw[:room].decode(errors="ignore")
    return shown + _note(len(shown.encode()), len(raw))


def _note(shown: int, total: int) -> str:
    return f"… [truncated: {shown:,} of {total:,} bytes shown]"


def first_sentence(text: str) -> str:
    """The first sentence of a description, on one line."""
    line = " ".join(text.split())
    end = len(line)
    for mark in _ENDS:
        at = line.find(mark, 0, end)
        while at >= 0 and mark != "。" and line.endswith(_ABBREVIATIONS, 0, at):
            at = line.find(mark, at + 1, end)
        if at >= 0:
            end = at + 1
    return line[:end]


def in_one_line(text: str) -> str:
    r"""The text without a break or a gap that could look like one: `\n` and `\t` spelt out, long runs of blanks counted."""
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return _GAP.sub(lambda gap: f" [{len(gap[0])} spaces] ", text)


_GAP = re.compile(r"\s{5,}")


def escape_terminal(text: str) -> str:
    r"""The text with everything that could steer a terminal spelt out, e.g. ESC as `\x1b`.

    Newlines and tabs stay. Controls, marks that change the direction of text, separators of lines, tag
    characters and lone surrogates are shown as escapes.
    """
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
