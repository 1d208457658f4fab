"""OpenAI's chat completions, and whatever speaks like them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from toolcrib.core.model import JSON, Content
from toolcrib.http.event_stream import StreamEvent
from toolcrib.provider.messages import Message, Reasoning, Text, ToolResult
from toolcrib.provider.models.http_client import Answer, Service
from toolcrib.provider.models.http_model import Reader, ServedModel
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

OPENAI: Final = Service("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY")

_RESERVED: Final = {
    "messages": "messages are what is said in the conversation",
    "model": "open the provider with another `model`",
    "n": "a conversation goes on with one answer",
    "parallel_tool_calls": "say `max_parallel: 1` in the policy",
    "stream": "ask for events of the conversation instead",
    "tool_choice": "say it in the policy",
    "tools": "they are declared by the runtime",
}
_REASONS: Final = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refused",
}
_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_THOUGHTS: Final = ("reasoning_content", "reasoning")


class OpenAIChat(ServedModel):
    """A model that speaks OpenAI's chat completions.

    Args:
        strict: Declare tools so that the model is held to their schemas.
        reasoning_field: Where the service wants back what the model thought: the field's name in the assistant's
            messages, such as `reasoning_content`. It gets nothing back unless this is given.
        images: Whether the model takes images; it is told of them instead where it does not.
        **options: As `ServedModel` takes them.
    """

    SERVICE = OPENAI
    PATH = "/chat/completions"

    def __init__(
        self, *, strict: bool = False, reasoning_field: str = "", images: bool = True, **options: Any
    ) -> None:
        super().__init__(**options)
        self.dialect = "openai_strict" if strict else "openai"
        self._reasoning_field = reasoning_field
        self._images = images

    def body(self, request: Request) -> dict[str, JSON]:
        """The request as it is sent."""
        body: dict[str, Any] = {"model": self.model, **settings_of(request, _RESERVED)}
        if request.streaming:
            body["stream"] = True
            body.setdefault("stream_options", {"include_usage": True})
        if tools := offered(request):
            body["tools"] = [dict(tool.definition) for tool in tools]
            if request.tool_choice in ("required", "none"):
                body["tool_choice"] = request.tool_choice
            elif request.tool_choice != "auto":
                body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
            if not request.parallel:
                body["parallel_tool_calls"] = False
        body["messages"] = list(self._messages(request.messages))
        return body

    def read_whole(self, value: dict[str, Any], answer: Answer) -> Iterator[Delta]:
        """What an answer says that does not come as events."""
        choices = objects_of(value.get("choices"))
        if not choices:
            raise answer.unreadable("the answer has no `choices`")
        end = _End(value)
        yield from end.read(object_of(choices[0].get("message")))
        yield end.finish(choices[0].get("finish_reason"))

    def reader(self, answer: Answer) -> Reader:
        """What reads an answer that comes as events."""
        return _Reader(answer)

    def _messages(self, messages: Iterable[Message]) -> Iterator[JSON]:
        """All messages. What is not text in the results of a round is shown by the user behind the last of them."""
        shown: list[JSON] = []
        for message in messages:
            if message.role == "tool":
                for result in message.results:
                    yield {"role": "tool", "tool_call_id": wire_id(result.id), "content": result.text}
                    shown += self._shown(result)
                continue
            if shown:
                yield {"role": "user", "content": shown}
                shown = []
            yield self._message(message)
        if shown:
            yield {"role": "user", "content": shown}

    def _message(self, message: Message) -> JSON:
        if message.role == "assistant":
            return self._assistant(message)
        if message.role == "system":
            return {"role": "system", "content": message.text}
        return {"role": "user", "content": self._content(message)}

    def _shown(self, result: ToolResult) -> list[JSON]:
        """The images of a result, which a message of a tool can't have; its text says what else there is."""
        parts = [part for part in map(self._part, result.content) if object_of(part)["type"] == "image_url"]
        which = f"From the result of `{result.name}` ({wire_id(result.id)}):"
        return [{"type": "text", "text": which}, *parts] if parts else []

    def _content(self, message: Message) -> JSON:
        """A user's message: a text where it is only that."""
        if all(isinstance(part, Text) for part in message.parts) and len(message.parts) == 1:
            return message.text
        return [self._part(part) for part in message.parts if isinstance(part, Text | Content)]

    def _part(self, part: Text | Content) -> JSON:
        told = _part(part)
        if self._images or isinstance(part, Text) or object_of(told)["type"] != "image_url":
            return told
        return {"type": "text", "text": described(part)}

    def _assistant(self, message: Message) -> JSON:
        told: dict[str, JSON] = {"role": "assistant", "content": message.text or None}
        thought = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if self._reasoning_field and thought:
            told[self._reasoning_field] = thought
        if message.calls:
            told["tool_calls"] = [
                {
                    "id": wire_id(call.id),
                    "type": "function",
                    "function": {"name": wire_name(call), "arguments": written_arguments(call)},
                }
                for call in message.calls
            ]
        elif not message.text:
            told["content"] = ""
        return told


def _part(part: Text | Content) -> JSON:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.type == "image" and (address := address_of(part)):
        return {"type": "image_url", "image_url": {"url": address}}
    if part.type == "audio" and part.data and part.mime_type in _SOUNDS:
        sound: dict[str, JSON] = {"data": part.data, "format": _SOUNDS[part.mime_type]}
        return {"type": "input_audio", "input_audio": sound}
    if part.mime_type in IMAGES and part.data:
        return {"type": "image_url", "image_url": {"url": address_of(part)}}
    if part.mime_type == PDF and part.data:
        file = {"filename": part.title or "file.pdf", "file_data": address_of(part, frozenset({PDF}))}
        return {"type": "file", "file": {**file}}
    return {"type": "text", "text": described(part)}


class _End:
    """Gathers what the end of an answer is told by, beside what it says."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._model = text_of(value.get("model"))
        self._usage = object_of(value.get("usage"))
        self._called = self._refused = False

    def meet(self, value: dict[str, Any]) -> None:
        """A further piece of the answer."""
        self._model = text_of(value.get("model")) or self._model
        self._usage = object_of(value.get("usage")) or self._usage

    def read(self, said: dict[str, Any]) -> Iterator[Delta]:
        """What a message, or a piece of one, says."""
        for field in _THOUGHTS:
            if thought := text_of(said.get(field)):
                yield ReasoningDelta(thought)
                break
        if text := _joined(said.get("content")):
            yield TextDelta(text)
        if refusal := text_of(said.get("refusal")):
            self._refused = True
            yield TextDelta(refusal)
        for position, call in enumerate(_calls(said)):
            self._called = True
            index, function = call.get("index"), object_of(call.get("function"))
            arguments = function.get("arguments")
            yield CallDelta(
                index if isinstance(index, int) else position,
                text_of(call.get("id")),
                text_of(function.get("name")),
                arguments if isinstance(arguments, dict) else text_of(arguments),
            )

    def finish(self, reason: Any) -> Finish:
        """The end, for the reason that was given."""
        unsaid = "length" if self._called else "stop"  # no reason: nobody says that the calls are whole
        told = "refused" if self._refused else _REASONS.get(text_of(reason), text_of(reason) or unsaid)
        if told == "stop" and self._called:
            told = "tool_calls"
        return Finish(told, _tokens(self._usage), self._model)


class _Reader:
    finish: Finish | None = None
    done = False

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._end = _End({})
        self._reason: Any = None

    def add(self, event: StreamEvent) -> Iterator[Delta]:
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        value = self._answer.read(event.data, "an event")
        self._end.meet(value)
        for choice in objects_of(value.get("choices"))[:1]:
            yield from self._end.read(object_of(choice.get("delta")))
            self._reason = choice.get("finish_reason") or self._reason
        if self._reason:
            self.finish = self._end.finish(self._reason)


def _calls(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message; some compatible services still write its only one as `function_call`."""
    alone = object_of(said.get("function_call"))
    return objects_of(said.get("tool_calls")) or ([{"function": alone}] if alone else [])


def _joined(content: Any) -> str:
    """The text of a message, which compatible services also write as a list of parts."""
    return text_of(content) or "".join(text_of(part.get("text")) for part in objects_of(content))


def _tokens(usage: dict[str, Any]) -> Tokens:
    before, after = (
        object_of(usage.get("prompt_tokens_details")),
        object_of(usage.get("completion_tokens_details")),
    )
    return Tokens(
        input=count_of(usage.get("prompt_tokens")),
        output=count_of(usage.get("completion_tokens")),
        cached=count_of(before.get("cached_tokens")),
        cache_writes=count_of(before.get("cache_write_tokens")),
        reasoning=count_of(after.get("reasoning_tokens")),
    )
