"""Open providers by name: the built-in ones and those of installed distributions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.protocols import Clock
from toolcrib.http.messages import parse_origin
from toolcrib.loading.scenarios.agents import GROUP
from toolcrib.provider.models.protocol import Provider
from toolcrib.security.egress import is_loopback, is_metadata, read_host
from toolcrib.security.hosts import host_and_port
from toolcrib.servers.environment import NetworkEnvironment


def open_provider(
    name: str,
    *,
    model: str = "",
    base_url: str = "",
    api_key: str | None = None,
    world: NetworkEnvironment | None = None,
    clock: Clock | None = None,
    trusted: bool = True,
    **options: Any,
) -> Provider:
    """Open a provider by name.

    Example:
        ```python
        provider = open_provider("openai", model="gpt-5-mini", timeout=60.0)
        ```

    Args:
        name: `openai` (chat completions), `openai_responses`, `azure_openai` (chat completions of a
            deployment), `anthropic` (messages), or a provider of an installed distribution.
        model: Name of the model.
        base_url: URL of the service (default: the public one). `azure_openai` requires the endpoint of the
            resource. The egress guard decides whether it may be reached.
        api_key: API key; `${VAR}` is resolved, and an empty string means no key. Default: `OPENAI_API_KEY`,
            `AZURE_OPENAI_API_KEY` or `ANTHROPIC_API_KEY` of the environment, optional for services on this
            machine.
        world: Network environment (default: the one of the runtime whose tools are offered).
        clock: Clock for the delays between attempts (default: the system clock).
        trusted: Whether the API key of the environment may be sent to `base_url`. Pass False for a URL from a
            file; the key is then sent only to the provider's own URL and to this machine.
        **options: Options of the provider, such as `headers`, `timeout`, `attempts` and `strict`.

    Raises:
        ConfigurationError: `unknown_provider`, `unknown_option`, `missing_model`, `invalid_base_url`.
    """
    make = _BUILT_IN[name]() if name in _BUILT_IN else _offered(name)
    _check_options(name, make, options)
    # Otherwise the author of a document could point `base_url` at a host of their own and collect the key of
    # everyone who runs it.
    if api_key is None and not (trusted or _is_at_home(make, base_url)):
        api_key = ""
    common = {"model": model, "base_url": base_url, "api_key": api_key, "world": world, "clock": clock}
    provider: Provider = make(**common, **options)
    return provider


def _is_at_home(make: Callable[..., Any], base_url: str) -> bool:
    """Whether a URL is the provider's own or on this machine."""
    if not base_url:
        return True
    from toolcrib.provider.models.http_client import parse_base_url  # noqa: PLC0415 -- imports the HTTP client

    origin = parse_base_url(base_url).origin
    service = getattr(make, "SERVICE", None)
    own = service is not None and service.base_url and origin == parse_base_url(service.base_url).origin
    return bool(own) or is_loopback(parse_origin(origin)[1])


def provider_names() -> list[str]:
    """The names that `open_provider` accepts; sorted."""
    from importlib.metadata import entry_points  # noqa: PLC0415 -- slow: searches all installed metadata

    return sorted({*_BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})


def allow_base_url(world: NetworkEnvironment, base_url: str) -> NetworkEnvironment:
    """Permit the service URL of an operator: one on this machine, or with an IP address as host.

    Use it only for a URL of the person who runs the command. Host names still go through the egress guard,
    and so do the metadata addresses of clouds, which serve credentials. An invalid URL changes nothing;
    `open_provider` reports it.
    """
    try:
        parts = urlsplit(base_url)
        _, host, port = parse_origin(f"{parts.scheme}://{parts.netloc}")
        read = read_host(host)
    except ValueError:
        return world
    # A name could resolve to any address, so only what the operator has seen is permitted.
    if not (is_loopback(read.name) or (read.literal and not is_metadata(read.name))):
        return world
    return world._replace(guard=world.guard.also([host_and_port(read.name, port)]))


def _openai() -> Callable[..., Any]:
    from toolcrib.provider.models.openai import OpenAIChat  # noqa: PLC0415 -- imports the HTTP client

    return OpenAIChat


def _openai_responses() -> Callable[..., Any]:
    from toolcrib.provider.models.openai import OpenAIResponses  # noqa: PLC0415 -- as above

    return OpenAIResponses


def _anthropic() -> Callable[..., Any]:
    from toolcrib.provider.models.anthropic import Anthropic  # noqa: PLC0415 -- as above

    return Anthropic


def _azure_openai() -> Callable[..., Any]:
    from toolcrib.provider.models.openai import AzureOpenAI  # noqa: PLC0415 -- as above

    return AzureOpenAI


_BUILT_IN: Final[Mapping[str, Callable[[], Callable[..., Any]]]] = {
    "anthropic": _anthropic,
    "azure_openai": _azure_openai,
    "openai": _openai,
    "openai_responses": _openai_responses,
}


def _offered(name: str) -> Callable[..., Any]:
    from importlib.metadata import entry_points  # noqa: PLC0415 -- slow: searches all installed metadata

    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        known = provider_names()
        near = did_you_mean(name, known)
        raise ConfigurationError(
            f"unknown provider `{name}`",
            code="unknown_provider",
            hint=near or f"known providers: {', '.join(f'`{each}`' for each in known)}",
        )
    make: Callable[..., Any] = offered[name].load()
    return make


def _check_options(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Check the options of a provider.

    Raises:
        ConfigurationError: `unknown_option`; the error lists all unknown options.
    """
    known, open_ended = _options_of(make)
    unknown = [] if open_ended else sorted(options.keys() - known)
    if unknown:
        many = "s" if len(unknown) > 1 else ""
        message = (
            f"unknown option{many} {', '.join(f'`{each}`' for each in unknown)} for the provider `{name}`"
        )
        near = "; ".join(filter(None, (did_you_mean(each, known) for each in unknown)))
        listed = ", ".join(f"`{each}`" for each in sorted(known)) or "none"
        raise ConfigurationError(message, code="unknown_option", hint=near or f"known options: {listed}")


_COMMON: Final = frozenset({"model", "base_url", "api_key", "world", "clock", "self"})


def _options_of(make: Callable[..., Any]) -> tuple[set[str], bool]:
    """The option names of a provider, and whether it accepts any name."""
    # The built-in classes pass `**options` on to their base, so collect the options along the inheritance.
    known: set[str] = set()
    # Without `object`, whose `__init__` accepts anything.
    classes = inspect.getmro(make)[:-1] if isinstance(make, type) else ()
    layers = [vars(each)["__init__"] for each in classes if "__init__" in vars(each)] or [make]
    for layer in layers:
        parameters = inspect.signature(layer).parameters.values()
        known |= {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            return known - _COMMON, False
    return known - _COMMON, True
