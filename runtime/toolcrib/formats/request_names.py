"""Names that importers derive from requests: of tools, of arguments for segments of a path, and of environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote

from toolcrib.formats.http_samples import VARIABLE, split_url
from toolcrib.schema.inference import is_data

_WHOLE_PLACEHOLDER: Final = re.compile(
    rf"\{{([A-Za-z_][\w.-]*)\}}|:([A-Za-z_][\w.-]*)|<([A-Za-z_][\w.-]*)>|{VARIABLE.pattern}"
)
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VERSION: Final = re.compile(r"v\d+([._]\d+)*|api|rest", re.IGNORECASE)
LONGEST_NAME: Final = 64
"""What the strictest provider of models allows."""


def words_of(text: str) -> list[str]:
    """The words of a name in any spelling, in lower case: `getUserById`, `get-user-by-id`, `Get user by ID`."""
    return [word.lower() for part in _NOT_IN_NAME.split(text) for word in _HUMP.split(part) if word]


def name_of_words(words: Iterable[str]) -> str:
    """The name of a tool: words with `_` between them, of a length that every provider accepts."""
    name = "_".join(words) or "tool"
    # The end of a long name tells more than its beginning.
    while len(name) > LONGEST_NAME and "_" in name:
        head, _, rest = name.partition("_")
        second, _, tail = rest.partition("_")
        name = f"{head}_{tail}" if tail else f"{head}_{second}"[:LONGEST_NAME]
    name = name[:LONGEST_NAME]
    return name if name[0].isalpha() else f"tool_{name}"[:LONGEST_NAME]


def name_of_request(method: str, url: str) -> str:
    """The name of the tool of a request: `get_users_orders` of `GET /v1/users/42/orders`."""
    segments = [each for each in split_url(url).path.split("/") if each]
    words = [method.lower()]
    for segment in segments:
        if not _VERSION.fullmatch(segment) and placeholder_of(segment) is None and not is_data(segment):
            words += words_of(unquote(segment))
    if segments and (placeholder_of(segments[-1]) is not None or is_data(segments[-1])):
        words += ["by", *words_of(argument_of_segment(segments, len(segments) - 1))]
    if len(words) == 1:
        words += [word for word in words_of(host_label(url)) if word]
    return name_of_words(words)


def unique_names(wanted: Iterable[str]) -> Iterator[str]:
    """Each name, numbered from its second occurrence on."""
    taken: set[str] = set()
    # The last number of each name: to try all again would take quadratic time for many equal names.
    last: dict[str, int] = {}
    for name in wanted:
        free, number = name, last.get(name, 1)
        while free in taken:
            number += 1
            free = f"{name[: LONGEST_NAME - len(str(number)) - 1]}_{number}"
        last[name] = number
        taken.add(free)
        yield free


def placeholder_of(segment: str) -> str | None:
    """The name in a segment of a path that is a placeholder: `{id}`, `:id`, `<id>`, or the mark of a variable."""
    match = _WHOLE_PLACEHOLDER.fullmatch(segment)
    return None if match is None else next(each for each in match.groups() if each is not None)


def argument_of_segment(segments: Sequence[str], place: int) -> str:
    """The name of an argument for a segment: that of its placeholder, or `order_id` after `orders`."""
    said = placeholder_of(segments[place])
    if said is not None:
        return said
    above = unquote(segments[place - 1]) if place else ""
    if not above or is_data(above) or placeholder_of(above) is not None or _VERSION.fullmatch(above):
        return "id"
    return "_".join([*words_of(singular(above)), "id"])


def singular(word: str) -> str:
    """The singular of an English plural as paths contain them."""
    if re.search(r"(?i)(ss|us|is|news)$", word):
        return word
    word = re.sub(r"(?i)ies$", "y", word)
    word = re.sub(r"(?i)(ss|x|ch|sh)es$", r"\1", word)
    return re.sub(r"(?i)(?<=\w)s$", "", word)


def host_label(url: str) -> str:
    """The part of a host that names its owner, such as `github` of `api.github.com`; `api` for an address."""
    match = re.match(r"[a-z]+://(?:[^/@]*@)?([^/:?#\ue000]+)", url, re.IGNORECASE)
    labels = match[1].split(".") if match is not None else []
    if not labels or all(label.isdigit() for label in labels) or len(labels) == 1:
        return "api"
    return max(labels[:-1], key=lambda label: (label not in {"api", "www"}, len(label)))


def variable_name(*parts: str) -> str:
    """The name of an environment variable of some words: `GITHUB_TOKEN`."""
    name = "_".join(word for part in parts for word in words_of(part)).upper()
    return name if name[:1].isalpha() else f"API_{name}".rstrip("_")
