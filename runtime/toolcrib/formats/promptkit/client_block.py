"""How PromptKit describes a tool that its caller fulfils, turned into our `client` block.

`consent` and `categories` are the same there and here. `timeout_ms` counts milliseconds. Answers are always judged
here: with `validate_output: false` one that does not fit is passed on (`on_invalid_result: pass`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from toolcrib.core.model import JSON
from toolcrib.formats.promptkit.live_block import Form
from toolcrib.loading.documents.positions import pointer_of


def put_client(form: Form, block: dict[str, JSON], place: str) -> None:
    """PromptKit's `client`; a key that it does not have passes through, to be judged like one of ours."""
    form.put(("client",), {}, place)
    for key, item in block.items():
        turn = _TURNS.get(key)
        where = place + pointer_of((key,))
        if turn is None:
            form.put(("client", key), item, where)
        else:
            turn(form, item, where)


def _timeout(form: Form, item: JSON, place: str) -> None:
    """None or less means the tool's own."""
    if isinstance(item, bool) or not isinstance(item, int):
        form.problem("wrong_type", "a timeout in milliseconds is a whole number", place)
    elif item > 0:
        form.put(("client", "timeout"), f"{item}ms", place)


def _validate_output(form: Form, item: JSON, place: str) -> None:
    if not isinstance(item, bool):
        form.problem("wrong_type", "`validate_output` is true or false", place)
    elif not item:
        form.put(("on_invalid_result",), "pass", place)


_Turn: TypeAlias = Callable[[Form, JSON, str], None]

_TURNS: Mapping[str, _Turn] = {"timeout_ms": _timeout, "validate_output": _validate_output}
