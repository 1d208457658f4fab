"""Convert JSON values and results to text for models, digests and terminals, and parse JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from toolcrib.core.model import JSON, Content, Outcome, Result

MODEL_LIMIT = 65536
"""Default limit on the text of a result for a model, in bytes."""


def _encode_function(*, sort_keys: bool, ascii_only: bool = False) -> Callable[[JSON], str]:
    """`encode` of a JSONEncoder without spaces, which would make its encoder in C again for each value."""
    standard = json.JSONEncoder(
        separators=(",", ":"), ensure_ascii=ascii_only, allow_nan=False, sort_keys=sort_keys
    )
    strings = json.encoder.encode_basestring_ascii if ascii_only else json.encoder.encode_basestring
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    try:
        # Without the memory of containers that it takes first, a value that contains itself ends in a RecursionError.
        pieces = make(None, standard.default, strings, None, ":", ",", sort_keys, False, False)
    except TypeError:  # a Python without this function, or with another one
        return standard.encode
    return lambda value: "".join(pieces(value, 0))


_COMPACT = _encode_function(sort_keys=False)
_CANONICAL = _encode_function(sort_keys=True)

compact_ascii: Final = _encode_function(sort_keys=False, ascii_only=True)
"""Encodes a JSON value without spaces, and lone surrogates as escapes."""

SIZE_PATTERN = r"^[1-9][0-9]{0,8} ?(B|kB|KB|MB|KiB|MiB)?$"
"""JSON Schema `pattern` of a size, such as `32KiB`, `8 MiB`, `500 kB` or `1024`. The document schemas repeat it."""

_UNITS = {"": 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "KiB": 1024, "MiB": 1024**2}
_SIZE = re.compile(r"(\d+) ?(\D*)")

_ENDS = (". ", "! ", "? ", "。")
_ABBREVIATIONS = ("e.g", "i.e")

# Control characters except newline and tab, direction marks, line separators, lone surrogates and tag characters. An
# untrusted text could use them to clear a terminal, hide a part of itself or show it in another order.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


_LONGEST_KEY: Final = 60
"""Maximum length of a key in a message, in characters."""


class DuplicateKey(ValueError):
    """A JSON object contains a key twice."""

    # Parsers disagree on such objects (RFC 8259, section 4): a check could see one value and the tool the other.


class NotFinite(ValueError):
    """`NaN` or `Infinity`, which are not valid JSON numbers."""


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object from its members, as an `object_pairs_hook`.

    Raises:
        DuplicateKey: A key occurs twice.
    """
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    names: set[str] = set()
    for name, _value in pairs:
        if name in names:
            break
        names.add(name)
    # A longer key is omitted instead of cut, because the redaction of messages does not recognize a cut secret.
    shown = f" `{escape_terminal(name)}`" if len(name) <= _LONGEST_KEY else ""
    raise DuplicateKey(f"duplicate key{shown} in one object")


def _refuse_constant(name: str) -> NoReturn:
    raise NotFinite(f"`{name}` is not a valid JSON number")


# The hook adds 3 ms to the 8 ms for 1 MB of typical rows, and 15 ms if every object has a single member.
JSON_DECODER: Final = json.JSONDecoder(object_pairs_hook=unique_members, parse_constant=_refuse_constant)
"""Decoder for untrusted JSON, with the checks of `decode_json`."""


def decode_json(text: str | bytes) -> JSON:
    """Parse untrusted JSON (RFC 8259).

    Args:
        text: JSON as text, or as bytes in UTF-8, UTF-16 or UTF-32.

    Raises:
        DuplicateKey: An object contains a key twice.
        NotFinite: The text contains `NaN` or `Infinity`.
        ValueError: The text is not valid JSON, or contains an integer of more than 4,300 digits.
        RecursionError: The value is nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    value: JSON = JSON_DECODER.decode(text)
    return value


def json_equal(left: object, right: object) -> bool:
    """Whether two JSON values are equal. Numbers compare by value, and the order of keys does not matter."""
    # Python treats True and 1 as equal; JSON does not.
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(json_equal(item, right[key]) for key, item in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(json_equal, left, right))
    return left is right or (left == right and isinstance(left, bool) is isinstance(right, bool))


def parse_size(written: str | float) -> int:
    """Convert a size that matches `SIZE_PATTERN`, or a number of bytes, to a number of bytes."""
    if not isinstance(written, str):
        # JSON Schema accepts `1e3` as an integer, which Python parses as a float.
        return int(written)
    number, unit = _SIZE.findall(written)[0]
    return int(number) * _UNITS[unit]


def format_size(size: int) -> str:
    """Format a number of bytes in the largest exact unit: `4MiB`, `500kB`, `1025B`."""
    for unit in ("MiB", "KiB", "MB", "kB"):
        if size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size}B"


def compact(value: JSON) -> str:
    """Encode a value as JSON without spaces, in its own key order.

    Raises:
        ValueError: A number is not finite, a string contains a lone surrogate, or the value is nested too deeply.
        TypeError: The value contains an object that is not a JSON value.
    """
    return _encode(_COMPACT, value)


def canonical(value: JSON) -> str:
    """Encode a value as JSON without spaces and with sorted keys, so that equal values give equal text.

    Raises:
        ValueError: As for `compact`.
        TypeError: As for `compact`.
    """
    return _encode(_CANONICAL, value)


def _encode(encode: Callable[[JSON], str], value: JSON) -> str:
    try:
        text = encode(value)
        # `ensure_ascii=False` writes lone surrogates without an error; only encoding finds them.
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
    """Return the text of a result for a model, in at most `limit` bytes of UTF-8.

    A string is unchanged, and any other value becomes compact JSON. Content parts follow, one per line, except those
    that repeat the value. A failed call gives its message, after the error code if that adds information.
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
    """Return the text of a part, or a description such as `[image image/png a title]`."""
    if part.text is not None:
        return part.text
    return "[" + " ".join(word for word in (part.type, part.mime_type, part.title, part.uri) if word) + "]"


def truncate(text: str, limit: int) -> str:
    """Shorten a text to at most `limit` bytes of UTF-8, ending with a note of how much is shown.

    Characters are never split. If even the note does not fit, it is omitted.
    """
    # A character has at most four bytes in UTF-8, so short texts need no encoding.
    if len(text) * 4 <= limit:
        return text
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return text
    # The note with the largest possible numbers, so that the real one always fits.
    room = limit - len(_note(len(raw), len(raw)).encode())
    if room < 0:
        return raw[: max(limit, 0)].decode(errors="ignore")
    shown = raw[:room].decode(errors="ignore")
    return shown + _note(len(shown.encode()), len(raw))


def _note(shown: int, total: int) -> str:
    return f"… [truncated: {shown:,} of {total:,} bytes shown]"


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, on one line."""
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
    r"""Return the text on one line, with `\n` and `\t` as escapes and long runs of spaces replaced by their length."""
    # In a wrapping terminal, a long run of spaces looks like a line break, so that text could imitate other output.
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return _GAP.sub(lambda gap: f" [{len(gap[0])} spaces] ", text)


_GAP = re.compile(r"\s{5,}")


def escape_terminal(text: str) -> str:
    r"""Return the text with everything that could control a terminal escaped, such as ESC as `\x1b`.

    Newlines and tabs stay. Other control characters, direction marks, line separators, tag characters and lone
    surrogates become escapes.
    """
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
