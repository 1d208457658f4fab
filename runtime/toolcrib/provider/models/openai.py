"""Adapters for OpenAI's chat completions, compatible services, Azure OpenAI, and OpenAI's responses API.

The responses API is used without server-side state: each request has the whole conversation, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import parse_qs, quote

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Content
from toolcrib.http.event_stream import StreamEvent
from toolcrib.provider.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from toolcrib.provider.models.assembler import whole_characters
from toolcrib.provider.models.http_client import (
    IMAGES,
    PDF,
    AnswerReader,
    ServedModel,
    Service,
    ServiceAnswer,
    arguments_text,
    count_of,
    declared_tools,
    describe_part,
    object_of,
    objects_of,
    parse_base_url,
    settings_of,
    source_url,
    text_of,
    wire_id,
    wire_name,
)
from toolcrib.provider.models.protocol import (
    CallDelta,
    Delta,
    Finish,
    ReasoningDelta,
    Request,
    TextDelta,
    Tokens,
)

OPENAI: Final = Service("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY")

_CHAT_RESERVED: Final = {
    "messages": "the conversation provides the messages",
    "model": "pass `model` when opening the provider",
    "n": "a conversation continues with a single answer",
    "parallel_tool_calls": "set `max_parallel: 1` in the policy",
    "stream": "stream the events of the conversation instead",
    "tool_choice": "set it in the policy",
    "tools": "the runtime declares the tools",
}
_REASONS: Final = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refused",
}
# The only audio formats that the API accepts.
_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
# Not in OpenAI's API: DeepSeek uses the first name, OpenRouter the second one.
_THOUGHTS: Final = ("reasoning_content", "reasoning")


class OpenAIChat(ServedModel):
    """A model with the API of OpenAI's chat completions.

    Args:
        strict: Declare tools in strict mode, which enforces their schemas.
        reasoning_field: Field of assistant messages in which the service expects earlier reasoning, such as
            `reasoning_content`. By default reasoning is not sent back.
        images: Whether the model accepts images. If not, images are described in text.
        **options: Options of `ServedModel`.
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
        """Build the body of a request."""
        body: dict[str, Any] = {"model": self.model, **settings_of(request, _CHAT_RESERVED)}
        if request.streaming:
            body["stream"] = True
            # Without this option, a streamed answer has no token counts.
            body.setdefault("stream_options", {"include_usage": True})
        if tools := declared_tools(request):
            body["tools"] = [dict(tool.definition) for tool in tools]
            if request.tool_choice in ("required", "none"):
                body["tool_choice"] = request.tool_choice
            elif request.tool_choice != "auto":
                body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
            if not request.parallel:
                body["parallel_tool_calls"] = False
        body["messages"] = list(self._messages(request.messages))
        return body

    def read_whole(self, value: dict[str, Any], answer: ServiceAnswer) -> Iterator[Delta]:
        """Decode an answer that is not streamed."""
        choices = objects_of(value.get("choices"))
        if not choices:
            raise answer.unreadable("the answer has no `choices`")
        end, choice = _ChatEnd(value), min(choices, key=_index_of)
        yield from end.read(object_of(choice.get("message")))
        yield end.finish(choice.get("finish_reason"))

    def reader(self, answer: ServiceAnswer) -> AnswerReader:
        """Create the reader of a streamed answer."""
        return _ChatReader(answer)

    def _messages(self, messages: Iterable[Message]) -> Iterator[JSON]:
        """Convert the messages."""
        # A message with the role `tool` may have only text, and all results of a round must follow each other
        # directly. So images go into a message of the user after the last result.
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
        """The images of a result, with a caption; its text describes all other parts."""
        parts = [part for part in map(self._part, result.content) if object_of(part)["type"] == "image_url"]
        which = f"From the result of `{result.name}` ({wire_id(result.id)}):"
        return [{"type": "text", "text": which}, *parts] if parts else []

    def _content(self, message: Message) -> JSON:
        """The content of a user message: a string if it has only text."""
        # Some compatible services accept only a string here.
        if all(isinstance(part, Text) for part in message.parts) and len(message.parts) == 1:
            return message.text
        return [self._part(part) for part in message.parts if isinstance(part, Text | Content)]

    def _part(self, part: Text | Content) -> JSON:
        told = _chat_part(part)
        if self._images or isinstance(part, Text) or object_of(told)["type"] != "image_url":
            return told
        return {"type": "text", "text": describe_part(part)}

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
                    "function": {"name": wire_name(call), "arguments": arguments_text(call)},
                }
                for call in message.calls
            ]
        elif not message.text:
            told["content"] = ""  # null is only valid next to `tool_calls`
        return told


def _chat_part(part: Text | Content) -> JSON:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.type == "image" and (address := source_url(part)):
        return {"type": "image_url", "image_url": {"url": address}}
    if part.type == "audio" and part.data and part.mime_type in _SOUNDS:
        sound: dict[str, JSON] = {"data": part.data, "format": _SOUNDS[part.mime_type]}
        return {"type": "input_audio", "input_audio": sound}
    if part.mime_type in IMAGES and part.data:
        return {"type": "image_url", "image_url": {"url": source_url(part)}}
    if part.mime_type == PDF and part.data:
        file = {"filename": part.title or "file.pdf", "file_data": source_url(part, frozenset({PDF}))}
        return {"type": "file", "file": {**file}}
    return {"type": "text", "text": describe_part(part)}


class _ChatEnd:
    """Decodes the messages of an answer and collects the data of its end: model, tokens, finish reason."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._model = text_of(value.get("model"))
        self._usage = object_of(value.get("usage"))
        self._called = self._refused = False

    def meet(self, value: dict[str, Any]) -> None:
        """Read the model and the token counts of a chunk."""
        # Token counts come in a last chunk without choices, or in each chunk as running totals.
        self._model = text_of(value.get("model")) or self._model
        self._usage = object_of(value.get("usage")) or self._usage

    def read(self, said: dict[str, Any]) -> Iterator[Delta]:
        """Decode a message or a piece of one."""
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
        """Build the end of the answer from its finish reason."""
        # Without a reason, the arguments of the last call may be cut off, so no call may be made.
        unsaid = "length" if self._called else "stop"
        told = "refused" if self._refused else _REASONS.get(text_of(reason), text_of(reason) or unsaid)
        # Several compatible services report `stop` for an answer with calls.
        if told == "stop" and self._called:
            told = "tool_calls"
        return Finish(told, _chat_tokens(self._usage), self._model)


class _ChatReader:
    finish: Finish | None = None
    done = False

    def __init__(self, answer: ServiceAnswer) -> None:
        self._answer = answer
        self._end = _ChatEnd({})
        self._reason: Any = None
        self._index: int | None = None

    def add(self, event: StreamEvent) -> Iterator[Delta]:
        value = self._answer.read_event(event)
        self._end.meet(value)
        # The setting `n` is reserved, but a service may have its own default. Choices can share an event or
        # alternate.
        choices = objects_of(value.get("choices"))
        if choices and self._index is None:
            self._index = min(map(_index_of, choices))
        choice = next((each for each in choices if _index_of(each) == self._index), None)
        if choice is not None:
            yield from self._end.read(object_of(choice.get("delta")))
            self._reason = choice.get("finish_reason") or self._reason
        # Renewed with each event, because the token counts follow after the finish reason.
        if self._reason:
            self.finish = self._end.finish(self._reason)

    def unfinished(self) -> Finish:
        return self._end.finish(None)


def _index_of(choice: dict[str, Any]) -> int:
    return count_of(choice.get("index"))


def _calls(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message."""
    # Some compatible services still use the deprecated `function_call` for a single call.
    alone = object_of(said.get("function_call"))
    return objects_of(said.get("tool_calls")) or ([{"function": alone}] if alone else [])


def _joined(content: Any) -> str:
    """The text of a message."""
    # Some compatible services write a list of parts instead of a string.
    return text_of(content) or "".join(text_of(part.get("text")) for part in objects_of(content))


def _chat_tokens(usage: dict[str, Any]) -> Tokens:
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


API_VERSION: Final = "2024-10-21"
"""Default version of Azure's API; `?api-version=` in the URL overrides it."""


class AzureOpenAI(OpenAIChat):
    """A model that is deployed on Azure OpenAI.

    Args:
        model: Name of the deployment.
        base_url: Endpoint of the resource, such as `https://NAME.openai.azure.com`. Append `?api-version=`
            for another API version than 2024-10-21.
        **options: Options of `OpenAIChat`.

    Raises:
        ConfigurationError: `missing_model`; `invalid_base_url`, also if it is missing.
    """

    SERVICE = Service("Azure OpenAI", "", "AZURE_OPENAI_API_KEY", "api-key", "")

    def __init__(self, *, model: str, base_url: str = "", **options: Any) -> None:
        if not base_url:
            message = "Azure OpenAI has no default URL"
            hint = "set `base_url` to the endpoint of the resource, such as `https://NAME.openai.azure.com`"
            raise ConfigurationError(message, code="invalid_base_url", hint=hint)
        at = parse_base_url(base_url)
        query = [at.query] if at.query else []
        if "api-version" not in parse_qs(at.query):
            query.append(f"api-version={API_VERSION}")
        # Azure selects the model by the deployment in the path, not by `model` in the body.
        deployment = f"{at.origin}{at.path}/openai/deployments/{quote(model, safe='')}"
        super().__init__(model=model, base_url=f"{deployment}?{'&'.join(query)}", **options)


_RESPONSES_RESERVED: Final = {
    "conversation": "every request sends the whole conversation",
    "input": "the conversation provides the input",
    "instructions": "use `system` instead",
    "model": "pass `model` when opening the provider",
    "background": "toolcrib waits for each answer",
    "parallel_tool_calls": "set `max_parallel: 1` in the policy",
    "previous_response_id": "every request sends the whole conversation",
    "stream": "stream the events of the conversation instead",
    "tool_choice": "set it in the policy",
    "tools": "the runtime declares the tools",
}


class OpenAIResponses(ServedModel):
    """A model with OpenAI's responses API.

    Reasoning is sent back unchanged. With the setting `store: false`, this works only for encrypted
    reasoning, which requires the setting `include: [reasoning.encrypted_content]`. `max_tokens` is sent as
    `max_output_tokens`.

    Args:
        strict: Declare tools in strict mode, which enforces their schemas.
        **options: Options of `ServedModel`.
    """

    SERVICE = OPENAI
    PATH = "/responses"

    def __init__(self, *, strict: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.dialect = "openai_responses_strict" if strict else "openai_responses"

    def body(self, request: Request) -> dict[str, JSON]:
        """Build the body of a request."""
        settings = settings_of(request, _RESPONSES_RESERVED)
        if "max_tokens" in settings:
            settings.setdefault("max_output_tokens", settings.pop("max_tokens"))
        body: dict[str, Any] = {"model": self.model, **settings}
        if request.streaming:
            body["stream"] = True
        if tools := declared_tools(request):
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

    def read_whole(self, value: dict[str, Any], answer: ServiceAnswer) -> Iterator[Delta]:
        """Decode an answer that is not streamed."""
        if not isinstance(value.get("output"), list):
            raise answer.unreadable("the answer has no `output`")
        output = _ResponsesOutput(answer)
        for index, item in enumerate(objects_of(value["output"])):
            yield from output.end(index, item)
        yield output.finish(value)

    def reader(self, answer: ServiceAnswer) -> AnswerReader:
        """Create the reader of a streamed answer."""
        return _ResponsesReader(answer)


def _items(message: Message, *, stored: bool) -> Iterator[JSON]:
    """Convert a message to input items."""
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
        # A reasoning item that the service has not stored can only be sent back with its encrypted content.
        if thought.get("type") == "reasoning" and (stored or thought.get("encrypted_content")):
            yield thought
    elif isinstance(part, ToolCall):
        yield {
            "type": "function_call",
            "call_id": wire_id(part.id),
            "name": wire_name(part),
            "arguments": arguments_text(part),
        }
    elif isinstance(part, ToolResult):
        yield {"type": "function_call_output", "call_id": wire_id(part.id), "output": _output(part)}


def _output(result: ToolResult) -> JSON:
    """The output of a result: a string, or a list if it has parts that the service accepts."""
    more = [each for each in map(_responses_part, result.content) if object_of(each)["type"] != "input_text"]
    return [{"type": "input_text", "text": result.text}, *more] if more else result.text


def _content(parts: Iterable[Part]) -> JSON:
    said = [part for part in parts if isinstance(part, Text | Content)]
    if len(said) == 1 and isinstance(said[0], Text):
        return said[0].text
    return [_responses_part(part) for part in said]


def _responses_part(part: Text | Content) -> JSON:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if (part.type == "image" or part.mime_type in IMAGES) and (address := source_url(part)):
        return {"type": "input_image", "image_url": address, "detail": "auto"}
    if part.mime_type == PDF and part.data:
        address = source_url(part, frozenset({PDF}))
        return {"type": "input_file", "filename": part.title or "file.pdf", "file_data": address}
    return {"type": "input_text", "text": describe_part(part)}


class _ResponsesOutput:
    """Decodes the output items of an answer; a completed item repeats its pieces, which appear once."""

    def __init__(self, answer: ServiceAnswer) -> None:
        self._answer = answer
        self._said: dict[int, str] = {}
        self._called = self._refused = False

    def begin(self, index: int, item: dict[str, Any]) -> Iterator[Delta]:
        """Start an item; the ID and the name of a call are known here."""
        if item.get("type") == "function_call":
            self._called = True
            yield CallDelta(index, text_of(item.get("call_id")), text_of(item.get("name")))

    def piece(self, index: int, kind: str, text: str) -> Iterator[Delta]:
        """Decode a piece of an item."""
        if not text:
            return
        self._said[index] = self._said.get(index, "") + text
        if kind == "arguments":
            yield CallDelta(index, arguments=text)
        else:
            self._refused = self._refused or kind == "refusal"
            yield ReasoningDelta(text) if kind == "thought" else TextDelta(text)

    def end(self, index: int, item: dict[str, Any]) -> Iterator[Delta]:
        """Complete an item: yield what its pieces did not contain, and the reasoning to send back.

        Raises:
            ProviderError: The pieces differ from the item, or its type is unknown.
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
            # Skipping it would send an incomplete conversation back in the next request.
            raise self._answer.unreadable(f"the answer has an item of the unknown type `{kind}`")

    def finish(self, value: dict[str, Any]) -> Finish:
        """Build the end of the answer.

        Raises:
            ProviderError: The response failed.
        """
        status = text_of(value.get("status"))
        if status in ("failed", "cancelled"):
            raise self._answer.told(
                value.get("error") or {"message": f"the response has the status `{status}`"}
            )
        reason = "tool_calls" if self._called else "stop"
        if status == "incomplete":
            why = text_of(object_of(value.get("incomplete_details")).get("reason"))
            reason = _INCOMPLETE.get(why, why or "length")
        elif self._called and status != "completed":
            reason = "length"  # without a known status, the calls may be cut off
        if self._refused:
            reason = "refused"
        return Finish(reason, _responses_tokens(object_of(value.get("usage"))), text_of(value.get("model")))

    def _left(self, index: int, kind: str, whole: str) -> Iterator[Delta]:
        said = whole_characters(self._said.get(index, ""))
        if not whole.startswith(said):
            raise self._answer.unreadable("the streamed pieces of an item differ from the completed item")
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


class _ResponsesReader:
    finish: Finish | None = None
    done = False

    def __init__(self, answer: ServiceAnswer) -> None:
        self._answer = answer
        self._output = _ResponsesOutput(answer)

    def add(self, event: StreamEvent) -> Iterator[Delta]:
        value = self._answer.read_event(event)
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
            # The type of the last event implies the status, in case the response omits it.
            response = {"status": kind.removeprefix("response."), **object_of(value.get("response"))}
            self.finish, self.done = self._output.finish(response), True

    def unfinished(self) -> Finish:
        return self._output.finish({})


_BETWEEN: Final = "\n\n"


def _thoughts(item: dict[str, Any]) -> str:
    """The readable reasoning of an item: its summary, else its content."""
    for key in ("summary", "content"):
        if parts := [text_of(part.get("text")) for part in objects_of(item.get(key))]:
            return _BETWEEN.join(parts) if key == "summary" else "".join(parts)
    return ""


def _responses_tokens(usage: dict[str, Any]) -> Tokens:
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
