"""OpenAI's responses: the whole conversation is sent each time, and parts keep their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from toolcrib.core.model import JSON, Content
from toolcrib.http.event_stream import StreamEvent
from toolcrib.provider.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from toolcrib.provider.models.assembler import whole_characters
from toolcrib.provider.models.http_client import Answer
from toolcrib.provider.models.http_model import Reader, ServedModel
from toolcrib.provider.models.openai_chat import OPENAI
from toolcrib.provider.models.protocol import (
    CallDelta,
    Delta,
    Finish,
    ReasoningDelta,
    Request,
    TextDelta,
    Tokens,
)
from toolcrib.provider.models.wire_format import (
    IMAGES,
    PDF,
    address_of,
    count_of,
    described,
    object_of,
    objects_of,
    offered,
    settings_of,
    text_of,
    wire_id,
    wire_name,
    written_arguments,
)

_RESERVED: Final = {
    "conversation": "the whole conversation is sent each time",
    "input": "it is what is said in the conversation",
    "instructions": "say it as `system`",
    "model": "open the provider with another `model`",
    "background": "an answer is waited for",
    "parallel_tool_calls": "say `max_parallel: 1` in the policy",
    "previous_response_id": "the whole conversation is sent each time",
    "stream": "ask for events of the conversation instead",
    "tool_choice": "say it in the policy",
    "tools": "they are declared by the runtime",
}


class OpenAIResponses(ServedModel):
    """A model that speaks OpenAI's responses.

    What it thinks is handed back as the service gave it. Where `store: false` is among the settings, that is possible
    only for encrypted thoughts, which come if `include: [reasoning.encrypted_content]` stands there too. `max_tokens`
    is sent as `max_output_tokens`.

    Args:
        strict: Declare tools so that the model is held to their schemas.
        **options: As `ServedModel` takes them.
    """

    SERVICE = OPENAI
    PATH = "/responses"

    def __init__(self, *, strict: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.dialect = "openai_responses_strict" if strict else "openai_responses"

    def body(self, request: Request) -> dict[str, JSON]:
        """The request as it is sent."""
        settings = settings_of(request, _RESERVED)
        if "max_tokens" in settings:
            settings.setdefault("max_output_tokens", settings.pop("max_tokens"))
        body: dict[str, Any] = {"model": self.model, **settings}
        if request.streaming:
            body["stream"] = True
        if tools := offered(request):
            body["tools"] = [dict(tool.definition) for tool in tools]
            if request.tool_choice in ("required", "none"):
                body["tool_choice"] = request.tool_choice
            elif request.tool_choice != "auto":
                body["tool_choice"] = {"type": "function", "name": request.tool_choice}
            if not request.parallel:
                body["parallel_tool_calls"] = False
        stored = settings.get("store") is not False
        body["input"] = [item for message in request.messages for item in _items(message, stored=stored)]
        return body

    def read_whole(self, value: dict[str, Any], answer: Answer) -> Iterator[Delta]:
        """What an answer says that does not come as events."""
        if not isinstance(value.get("output"), list):
            raise answer.unreadable("the answer has no `output`")
        output = _Output(answer)
        for index, item in enumerate(objects_of(value["output"])):
            yield from output.end(index, item)
        yield output.finish(value)

    def reader(self, answer: Answer) -> Reader:
        """What reads an answer that comes as events."""
        return _Reader(answer)


def _items(message: Message, *, stored: bool) -> Iterator[JSON]:
    """The items that a message is."""
    if message.role == "user":
        yield {"role": "user", "content": _content(message.parts)}
    elif message.role == "system":
        yield {"role": "system", "content": message.text}
    else:
        for part in message.parts:
            yield from _item(part, stored=stored)


def _item(part: Part, *, stored: bool) -> Iterator[JSON]:
    if isinstance(part, Text) and part.text:
        yield {"role": "assistant", "content": part.text}
    elif isinstance(part, Reasoning):
        thought = object_of(part.data)
        if thought.get("type") == "reasoning" and (stored or thought.get("encrypted_content")):
            yield thought
    elif isinstance(part, ToolCall):
        yield {
            "type": "function_call",
            "call_id": wire_id(part.id),
            "name": wire_name(part),
            "arguments": written_arguments(part),
        }
    elif isinstance(part, ToolResult):
        yield {"type": "function_call_output", "call_id": wire_id(part.id), "output": _output(part)}


def _output(result: ToolResult) -> JSON:
    """A text; with the parts of the result that the service takes, where there are any."""
    more = [each for each in map(_part, result.content) if object_of(each)["type"] != "input_text"]
    return [{"type": "input_text", "text": result.text}, *more] if more else result.text


def _content(parts: Iterable[Part]) -> JSON:
    said = [part for part in parts if isinstance(part, Text | Content)]
    if len(said) == 1 and isinstance(said[0], Text):
        return said[0].text
    return [_part(part) for part in said]


def _part(part: Text | Content) -> JSON:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if (part.type == "image" or part.mime_type in IMAGES) and (address := address_of(part)):
        return {"type": "input_image", "image_url": address, "detail": "auto"}
    if part.mime_type == PDF and part.data:
        address = address_of(part, frozenset({PDF}))
        return {"type": "input_file", "filename": part.title or "file.pdf", "file_data": address}
    return {"type": "input_text", "text": described(part)}


class _Output:
    """What the items of an answer say; pieces that came are not said again by the whole item."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._said: dict[int, str] = {}
        self._called = self._refused = False

    def begin(self, index: int, item: dict[str, Any]) -> Iterator[Delta]:
        """An item begins; of a call, id and name are known."""
        if item.get("type") == "function_call":
            self._called = True
            yield CallDelta(index, text_of(item.get("call_id")), text_of(item.get("name")))

    def piece(self, index: int, kind: str, text: str) -> Iterator[Delta]:
        """A piece of an item."""
        self._said[index] = self._said.get(index, "") + text
        if kind == "arguments":
            yield CallDelta(index, arguments=text)
        else:
            self._refused = self._refused or kind == "refusal"
            yield ReasoningDelta(text) if kind == "thought" else TextDelta(text)

    def end(self, index: int, item: dict[str, Any]) -> Iterator[Delta]:
        """An item is whole: what no piece has said, and what is to be handed back.

        Raises:
            ProviderError: The pieces said something else, or nobody knows what it is.
        """
        kind = item.get("type")
        if kind == "function_call":
            if index not in self._said:
                yield from self.begin(index, item)
            yield from self._left(index, "arguments", text_of(item.get("arguments")))
        elif kind == "message":
            parts = objects_of(item.get("content"))
            self._refused = self._refused or any(part.get("type") == "refusal" for part in parts)
            said = "".join(text_of(part.get("text")) or text_of(part.get("refusal")) for part in parts)
            yield from self._left(index, "text", said)
        elif kind == "reasoning":
            yield from self._left(index, "thought", _thoughts(item))
            yield ReasoningDelta("", item)
        else:
            raise self._answer.unreadable(f"the answer has an item of the type `{kind}`")

    def finish(self, value: dict[str, Any]) -> Finish:
        """The end.

        Raises:
            ProviderError: It failed.
        """
        status = text_of(value.get("status"))
        if status in ("failed", "cancelled"):
            raise self._answer.told(value.get("error") or {"message": f"the response is `{status}`"})
        reason = "tool_calls" if self._called else "stop"
        if status == "incomplete":
            why = text_of(object_of(value.get("incomplete_details")).get("reason"))
            reason = _INCOMPLETE.get(why, why or "length")
        elif self._called and status != "completed":
            reason = "length"
        if self._refused:
            reason = "refused"
        return Finish(reason, _tokens(object_of(value.get("usage"))), text_of(value.get("model")))

    def _left(self, index: int, kind: str, whole: str) -> Iterator[Delta]:
        said = whole_characters(self._said.get(index, ""))
        if not whole.startswith(said):
            raise self._answer.unreadable("the pieces of an item are not what the item is as a whole")
        if len(whole) > len(said):
            yield from self.piece(index, kind, whole[len(said) :])


_INCOMPLETE: Final = {"max_output_tokens": "length", "content_filter": "refused"}
_PIECES: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
    "response.reasoning_summary_text.delta": "thought",
    "response.reasoning_text.delta": "thought",
}
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Reader:
    finish: Finish | None = None
    done = False

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._output = _Output(answer)

    def add(self, event: StreamEvent) -> Iterator[Delta]:
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        value = self._answer.read(event.data, "an event")
        kind, index = text_of(value.get("type")) or event.type, count_of(value.get("output_index"))
        if kind in _PIECES:
            yield from self._output.piece(index, _PIECES[kind], text_of(value.get("delta")))
        elif kind == "response.reasoning_summary_part.added" and count_of(value.get("summary_index")):
            yield from self._output.piece(index, "thought", _BETWEEN)
        elif kind == "response.output_item.added":
            yield from self._output.begin(index, object_of(value.get("item")))
        elif kind == "response.output_item.done":
            yield from self._output.end(index, object_of(value.get("item")))
        elif kind in _ENDS:
            response = {"status": kind.removeprefix("response."), **object_of(value.get("response"))}
            self.finish, self.done = self._output.finish(response), True
        elif kind == "error":
            raise self._answer.told(value)


_BETWEEN: Final = "\n\n"


def _thoughts(item: dict[str, Any]) -> str:
    """What may be read of a model's thoughts: the summary, or else the thoughts."""
    for key in ("summary", "content"):
        if parts := [text_of(part.get("text")) for part in objects_of(item.get(key))]:
            return _BETWEEN.join(parts) if key == "summary" else "".join(parts)
    return ""


def _tokens(usage: dict[str, Any]) -> Tokens:
    before, after = (
        object_of(usage.get("input_tokens_details")),
        object_of(usage.get("output_tokens_details")),
    )
    return Tokens(
        input=count_of(usage.get("input_tokens")),
        output=count_of(usage.get("output_tokens")),
        cached=count_of(before.get("cached_tokens")),
        cache_writes=count_of(before.get("cache_write_tokens")),
        reasoning=count_of(after.get("reasoning_tokens")),
    )
