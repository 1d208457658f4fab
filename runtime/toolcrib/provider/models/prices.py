"""What answers cost."""

from __future__ import annotations

import math
from typing import NamedTuple

from toolcrib.core.errors import ConfigurationError
from toolcrib.provider.models.protocol import Tokens

_MILLION = 1_000_000


class Prices(NamedTuple):
    """US dollars for a million tokens of each kind.

    Attributes:
        input: What is sent.
        output: What is answered, with what was thought.
        cached: What is sent and was known to the provider; None for the price of `input`.
        cache_writes: What is sent and kept by the provider; None for the price of `input`.
    """

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    cache_writes: float | None = None

    def cost(self, tokens: Tokens) -> float:
        """US dollars."""
        kept = tokens.cached + tokens.cache_writes
        dollars = max(tokens.input - kept, 0) * self.input + tokens.output * self.output
        dollars += tokens.cached * (self.input if self.cached is None else self.cached)
        dollars += tokens.cache_writes * (self.input if self.cache_writes is None else self.cache_writes)
        return dollars / _MILLION

    def check(self) -> None:
        """Nothing, where all of them are prices.

        Raises:
            ConfigurationError: One is no finite number of at least 0.
        """
        for name, price in self._asdict().items():
            sound = isinstance(price, int | float) and not isinstance(price, bool)
            if price is not None and not (sound and math.isfinite(price) and price >= 0):
                raise ConfigurationError(
                    f"the price `{name}` is {price!r}", hint="write US dollars for a million tokens: 0.15"
                )
