"""How many tokens a declaration takes of a model's context.

What is counted is the JSON that is sent, without blanks. Providers put it into words of their own before a model
reads it, and none says how; so the counts compare tools and dialects, and a bill may differ by some percent.

**Exactly** counted, with the extra `tokens`, it is with `o200k_base`, the encoding of OpenAI's models since GPT-4o.
Anthropic and Google publish no encoding of theirs. Without the extra the tokens are **estimated**: a word is one
token and one more for each further ten letters, three digits are one, and so are four bytes of all else but blanks.
Of the declarations of tools, nine in ten are estimated with less than a tenth of error.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Final, NamedTuple

ENCODING: Final = "o200k_base"
EXTRA: Final = "tokens"

_PIECES: Final = re.compile(r"(?P<word>[A-Za-z]+)|(?P<number>[0-9]+)|(?P<other>[^\sA-Za-z0-9]+)")


class TokenCounter(NamedTuple):
    """Counts the tokens of texts.

    Attributes:
        count: Text -> tokens.
        exact: Whether it counts with the encoding, or estimates.
    """

    count: Callable[[str], int]
    exact: bool


def token_counter() -> TokenCounter:
    """What counts best of what is installed."""
    try:
        with warnings.catch_warnings():
            # It reads its data by a function that Python 3.11 and 3.12 warn of, and later ones do not.
            warnings.simplefilter("ignore", DeprecationWarning)
            from bpe_openai import get_encoding  # noqa: PLC0415 -- an extra, and large
    except ImportError:
        return TokenCounter(estimate_tokens, exact=False)
    encode = get_encoding(ENCODING).encode_ordinary
    return TokenCounter(lambda text: len(encode(text)), exact=True)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has; see the module for the rule."""
    return sum(_weight(piece) for piece in _PIECES.finditer(text))


def _weight(piece: re.Match[str]) -> int:
    text = piece.group()
    if piece.lastgroup == "word":
        return 1 + (len(text) - 1) // 10
    return _shares(len(text), 3) if piece.lastgroup == "number" else _shares(len(text.encode()), 4)


def _shares(length: int, size: int) -> int:
    return -(-length // size)
