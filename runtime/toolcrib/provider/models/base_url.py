"""Where a service of models is, and what of that is secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from toolcrib.core.errors import ConfigurationError
from toolcrib.security.redaction import is_secret_name
from toolcrib.servers.environment import normal_origin

_KEY: Final = re.compile(r"(?i)(key|sig|signature|auth|code)$")
"""Names in a query whose values are secret, besides those that are so everywhere."""


class Address(NamedTuple):
    """Where a service is.

    Attributes:
        origin: In its normal form.
        path: Before that of each request; without a slash at its end.
        query: Behind that of each request.
    """

    origin: str
    path: str
    query: str

    def target(self, path: str) -> str:
        """The target of a request."""
        return self.path + path + (f"?{self.query}" if self.query else "")

    def secrets(self) -> Iterator[str]:
        """What must be shown nowhere."""
        for name, value in parse_qsl(self.query):
            if is_secret_name(name) or _KEY.search(name):
                yield value


def address_of(base_url: str) -> Address:
    """The address that a text is.

    Raises:
        ConfigurationError: `invalid_base_url`: it is none.
    """
    try:
        parts = urlsplit(base_url)
        origin = normal_origin(f"{parts.scheme}://{parts.netloc}")
    except ValueError:
        raise ConfigurationError(
            "the `base_url` of the provider is no address",  # what is in it may be secret
            code="invalid_base_url",
            hint="write one such as `https://api.example.com/v1` or `http://127.0.0.1:4010/v1`",
        ) from None
    return Address(origin, parts.path.rstrip("/"), parts.query)
