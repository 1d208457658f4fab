"""Count the tokens that a declaration takes of a model's context.

The count is that of the compact JSON that is sent. Providers rewrite it before a model reads it, and none
documents how. The counts compare tools and dialects; a bill may differ by some percent.

With the extra `tokens`, the count is **exact** for `o200k_base`, the encoding of OpenAI's models since
GPT-4o. Anthropic and Google do not publish theirs. Without the extra, the count is an **estimate**: one token
per word plus one for each further ten letters, one per three digits, and one per four bytes of anything else
except whitespace. For nine in ten tool declarations the estimate is less than ten percent off.
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
        count: Text -> number of tokens.
        exact: Whether the count is exact; otherwise it is an estimate.
    """

    count: Callable[[str], int]
    exact: bool


def token_counter() -> TokenCounter:
    """The exact counter if the extra `tokens` is installed, else the estimate."""
    try:
        with warnings.catch_warnings():
            # bpe-openai calls a function of importlib.resources that is deprecated in Python 3.11 and 3.12
            # only.
            warnings.simplefilter("ignore", DeprecationWarning)
            from bpe_openai import get_encoding  # noqa: PLC0415 -- an extra, and large
    except ImportError:
        return TokenCounter(estimate_tokens, exact=False)
    # `ordinary`: a description that contains `<|endoftext|>` is text and not a special token.
    encode = get_encoding(ENCODING).encode_ordinary
    return TokenCounter(lambda text: len(encode(text)), exact=True)


def estimate_tokens(text: str) -> int:
    """Estimated number of tokens of a text; the module docstring gives the rule."""
    return sum(_weight(piece) for piece in _PIECES.finditer(text))


def _weight(piece: re.Match[str]) -> int:
    text = piece.group()
    if piece.lastgroup == "word":
        return 1 + (len(text) - 1) // 10
    return _shares(len(text), 3) if piece.lastgroup == "number" else _shares(len(text.encode()), 4)


def _shares(length: int, size: int) -> int:
    return -(-length // size)
