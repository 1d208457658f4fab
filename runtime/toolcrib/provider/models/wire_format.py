"""What the wire formats of all services have in common: parts of messages, and JSON that may be of any shape."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Content
from toolcrib.core.text import compact
from toolcrib.formats.providers import Declaration
from toolcrib.provider.messages import ToolCall
from toolcrib.provider.models.assembler import parse_written
from toolcrib.provider.models.protocol import Request

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The images that the services take as data."""

PDF: Final = "application/pdf"

_TAKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_TAKEN: Final = re.compile(r"[^A-Za-z0-9_-]+")


def wire_id(identity: str) -> str:
    """The id of a call as every service takes it: one that has other characters, or too many, gets a digest."""
    return identity if _TAKEN.fullmatch(identity) else f"call_{_digest(identity)[:32]}"


def wire_name(call: ToolCall) -> str:
    """The name in a call as every service takes it: as the model knows it, where that can be one.

    A model writes names that nobody has declared, and a service refuses whatever has such a name in it. Other
    characters are underscores there, and a digest keeps different names apart.
    """
    name = call.alias or call.name
    if _TAKEN.fullmatch(name):
        return name
    return f"{_NOT_TAKEN.sub('_', name)[:47] or 'unnamed'}_{_digest(name)[:16]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def arguments_of(call: ToolCall) -> dict[str, JSON]:
    """The arguments as the model gave them; what it wrote that is no object stands in one."""
    written = parse_written(call.written) if call.written else call.arguments
    return {"INVALID_JSON": call.written} if written is None else written


def written_arguments(call: ToolCall) -> str:
    """The same as JSON text, as the model wrote it wherever that is an object."""
    if call.written.lstrip().startswith("{") and parse_written(call.written) is not None:
        return call.written
    return compact(arguments_of(call))


def described(part: Content) -> str:
    """A part for a service that does not take it."""
    if part.text is not None:
        return part.text
    return "[" + " ".join(word for word in (part.type, part.mime_type, part.title, part.uri) if word) + "]"


def address_of(part: Content, kinds: frozenset[str] = IMAGES) -> str:
    """A part as an address: `data:` where its data is there and of one of the kinds; empty where it has none."""
    if part.data is not None:
        return f"data:{part.mime_type};base64,{part.data}" if part.mime_type in kinds else ""
    return part.uri if part.uri and part.uri.startswith(("https://", "http://")) else ""


def offered(request: Request) -> tuple[Declaration, ...]:
    """What is declared; nothing where no call may be made, unless the conversation has calls."""
    return () if request.tool_choice == "none" and not request.aware else request.tools


def settings_of(request: Request, reserved: Mapping[str, str]) -> dict[str, JSON]:
    """The settings.

    Args:
        request: The request.
        reserved: What can't be a setting -> where it is said instead.

    Raises:
        ConfigurationError: One of them can't be one.
    """
    for name in request.settings:
        if name in reserved:
            message = f"`{name}` can't be a setting of the provider"
            raise ConfigurationError(message, code="reserved_setting", hint=reserved[name])
    return dict(request.settings)


def text_of(value: Any) -> str:
    """A text, or the empty one where there is something else."""
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> dict[str, Any]:
    """An object, or the empty one where there is something else."""
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A count, or 0 where there is something else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
