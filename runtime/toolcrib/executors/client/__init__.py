"""Mode `client`: tools that the caller fulfils, such as those of a browser, a device or a person.

The caller gives a function (`Runtime(client=...)`, `Runtime.session(client=...)`, `Session.call(client=...)`), and
what it answers is judged like every answer. Where there is none, a call ends `needs_approval` with the code
`client_tool_deferred`, and whoever made it may give the result later.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import JSON, Call, Descriptor, Result, Schema
from toolcrib.executors.client.client_call import ClientCall, ClientTerms, check_block, deferred_result
from toolcrib.expressions.structures import copy_value

__all__ = ["BoundClient", "ClientExecutor"]


@cache
def _block_schema() -> Schema:
    from importlib.resources import files  # noqa: PLC0415 -- slow to import; no call needs the schema

    schema: Schema = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return schema


class ClientExecutor:
    """Asks the client of the call's context."""

    keeps_nothing = True
    reaches_out = True
    contained = True  # what happens outside, the caller does

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `client` block."""
        return _block_schema()

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Its time is possible, and its fallback has an effect and fits the output schema."""
        return [*check_block(descriptor)]

    def bind(self, descriptor: Descriptor) -> BoundClient:
        """Read the block.

        Raises:
            DocumentError: There is an error in it, which `check` would have told.
        """
        problems = self.check(descriptor)
        if problems:
            raise DocumentError(problems)
        return BoundClient(ClientTerms.of(descriptor))

    async def aclose(self) -> None:
        """Nothing to give back."""


class BoundClient:
    """A tool that the caller fulfils.

    Virtual time stands still while the client works, unless it sleeps on the session's clock; one that waits on
    the world says so (`with call.context.session.clock.outside()`).

    Attributes:
        waits: A call waits for the caller.
        timeout: Seconds that the caller may take.
    """

    waits = True

    def __init__(self, terms: ClientTerms) -> None:
        self.timeout = terms.timeout
        self._terms = terms

    async def execute(self, call: Call) -> Result:
        """Have the client fulfil the call; without one the call waits for somebody to do so later."""
        client = call.context.client
        if client is None:
            return deferred_result(
                call, self._terms, "nobody does so here, and its result can be given later"
            )
        asked = ClientCall(call.with_arguments(copy_value(call.arguments)), self._terms)
        answer = await client(asked)
        return answer if isinstance(answer, Result) else Result.ok(_own(answer))

    def explain(self, call: Call) -> JSON:
        """What the caller would be asked, and whether anybody is there to answer."""
        terms = self._terms
        plan: dict[str, JSON] = {
            "fulfilled_by": "nobody" if call.context.client is None else "client",
            **terms.as_json(),
            "decline_strategy": terms.strategy,
        }
        return {**plan, "fallback": copy_value(terms.fallback)} if terms.falls_back else plan


def _own(answer: JSON) -> JSON:
    """The answer as the call's own, where it is one that ends; any other is refused by the layer around."""
    try:
        copy: JSON = copy_value(answer)
    except RecursionError:
        return answer
    return copy
