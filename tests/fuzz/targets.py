"""What is fuzzed: each target takes any bytes, and says in a word or two what came of them.

A target fails if it raises: only the errors that a function promises are caught here, and what must hold is asserted.
What it says is how inputs are told apart: one that makes it say something new is worth keeping.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import click
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from drafting import tried
from http_servers import answering_raw, serving
from in_memory import MOCKS
from served_models import in_chunks, message, speaking
from toolcrib import Outcome, VirtualClock
from toolcrib.cli.arguments import plain_arguments, read_arguments
from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.message_splitter import MessageSplitter
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.core.text import DuplicateKey, canonical, decode_json, escape_terminal
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors.live.response import parse_json_body
from toolcrib.executors.mcp.remote_tool import result_of
from toolcrib.expressions import compile_expression, compile_text
from toolcrib.expressions.jmespath_queries import compile_select
from toolcrib.formats.promptkit.go_templates import translate
from toolcrib.http import ExchangeBounds, HTTPError, HTTPRequest, open_client
from toolcrib.http.event_stream import EventStream
from toolcrib.loading.documents.archives import CONTENT_BYTES, parse_archive
from toolcrib.loading.documents.document import parse_documents, parse_json
from toolcrib.loading.documents.json_text import without_comments
from toolcrib.loading.sources import parse
from toolcrib.provider import ProviderError
from toolcrib.provider.models.assembler import parse_arguments
from toolcrib.schema.validation import as_json as plain
from toolcrib.schema.validation import json_violation
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import MissingSecret, SecretResolver
from toolcrib.serve.http_common.asgi import InvalidMessage, parse_message
from toolcrib.servers.lock import parse_lock, render_lock
from toolcrib.servers.mcp.failures import CallTarget, InvalidAnswer
from toolcrib.servers.mcp.incoming_messages import parse_messages, read_head


class Target(NamedTuple):
    """Something that reads what others write.

    Attributes:
        name: Of its folder in the corpus.
        check: Reads bytes, and says what came of them.
        pieces: What inputs are made of, besides anything at all.
        share: How often it is tried, beside the others.
    """

    name: str
    check: Callable[[bytes], str]
    pieces: tuple[bytes, ...]
    share: float = 1.0


def _words(text: str) -> tuple[bytes, ...]:
    return tuple(word.replace("␣", " ").replace("⏎", "\n").encode() for word in text.split())


def _said(problems: Iterable[Problem]) -> str:
    for problem in problems:
        assert problem.code
        assert problem.message
        assert escape_terminal(str(problem)).encode()
    return " ".join(sorted({problem.code for problem in problems})) or "good"


def _documents(name: str, data: bytes) -> str:
    documents, problems = parse_documents(name, data)
    assert documents or problems
    for document in documents:
        assert json_violation(document.value) is None
        assert document.position("/none/such") >= (1, 1)
        again, faults = parse_json("again.json", canonical(document.value))
        assert not faults, faults
        assert canonical(again) == canonical(document.value)
    assert all(problem.line >= 1 for problem in problems)
    return _said(problems)


def yaml_documents(data: bytes) -> str:
    """YAML: every value is JSON, and comes back from its JSON."""
    return _documents("a.yaml", data)


def json_documents(data: bytes) -> str:
    """JSON, as our own reader reads it and as the one for foreign texts does."""
    said = _documents("a.json", data)
    value, problems = parse_json("a.json", data)
    if not problems and not data.startswith(b"\xef\xbb\xbf"):
        assert decode_json(data) == value
    return said


def descriptors(data: bytes) -> str:
    """Documents of tools: what is good of them can be called."""
    loaded = parse("a.tool.yaml", data, MOCKS)
    said = _said(loaded.problems)
    if not loaded.tools:
        return said

    async def called() -> str:
        outcomes = set()
        async with loaded_runtime(loaded, executors=MOCKS, clock=VirtualClock()) as runtime:
            for tool in loaded.tools[:5]:
                given = [{}, *(dict(example.args) for example in tool.examples[:3])]
                for arguments in given:
                    result = await runtime.call(tool.name, arguments)
                    assert not result.message.startswith("a bug while"), result.message
                    assert json_violation(result.value) is None
                    outcomes.add(result.outcome.value)
        return " ".join(sorted(outcomes))

    return f"{said}: {asyncio.run(called())}"


def archives(data: bytes) -> str:
    """Packs in zip archives: no content is larger than it may be."""
    archive, problems = parse_archive("a.zip", data)
    assert (archive is None) is bool(problems)
    if archive is not None:
        assert sum(map(len, archive.contents.values())) <= CONTENT_BYTES
        assert not any(".." in name.split("/") or name.startswith("/") for name in archive.contents)
    return _said(problems)


SCOPE: dict[str, JSON] = {
    "args": {"a": 1, "b": "two", "c": [1, 2.5, None, {"d": True}], "d": {"e": "é", "f": []}},
    "rows": [{"id": 1, "tags": ["x"]}, {"id": 2, "tags": []}],
    "n": 3,
}


def expressions(data: bytes) -> str:
    """Expressions and texts with statements: read, and worked out within their budget."""
    text = data.decode("utf-8", "replace")
    said = []
    for compiled in (
        lambda: compile_text(text, tuple(SCOPE)).render(SCOPE),
        lambda: compile_expression(text, tuple(SCOPE)).evaluate(SCOPE),
    ):
        try:
            value = compiled()
        except ExpressionError as error:
            said.append(error.code)
        else:
            assert plain(value)[1] is None
            said.append(type(value).__name__)
    return " ".join(said)


def go_templates(data: bytes) -> str:
    """Templates of Go: ours say the same, or it is told why there are none."""
    try:
        text = compile_text(translate(data.decode("utf-8", "replace"), lenient=True).text, ["args"])
        text.render(SCOPE)
    except ExpressionError as error:
        return error.code
    return "good"


def jmespath(data: bytes) -> str:
    """JMESPath: what can't be worked out is a ValueError."""
    problems: list[Problem] = []
    select = compile_select(data.decode("utf-8", "replace"), "/live/select", problems)
    assert (select is None) is bool(problems)
    if select is None:
        return _said(problems)
    try:
        return type(select(SCOPE)).__name__
    except ValueError as error:
        return str(error)


NASTY: tuple[JSON, ...] = (
    "../x",
    "a/b?c#d&e=f",
    "%2e%2e/",
    "\r\nX: 1",
    "",
    "é\ud800",
    5,
    None,
    True,
    ["a", "b"],
    {"k": "v"},
)


def urls(data: bytes) -> str:
    """Addresses with places: no argument leads to another host, or to another path than was written."""
    block: dict[str, Any] = {"url": data.decode("utf-8", "replace")}
    try:
        request, problems = tried(block, secrets=SecretResolver({"HOST": "api.example.com"}))
    except (MissingSecret, UnusableArguments) as error:
        return type(error).__name__
    if any(problem.severity == "error" for problem in problems):
        return _said(problems)
    shapes = set()
    for value in NASTY:
        with suppress(UnusableArguments, MissingSecret):
            draft = request.draft({"a": value, "b": "b"})
            sent = draft.finished()
            assert sent.target.isascii()
            assert not set(sent.target) & set("\r\n #")
            shapes.add((draft.origin, sent.target.partition("?")[0].count("/")))
    assert len(shapes) <= 1, shapes
    return _said(problems)


_TIGHT = ExchangeBounds(connect=2.0, read=2.0, body=20_000, headers=4_000)


def http_answers(data: bytes) -> str:
    """What a server writes: an answer within its bounds, or how it failed."""

    async def asked() -> str:
        async with serving(answering_raw(data)) as server:
            sender = open_client(EgressGuard([f"127.0.0.1:{server.port}"]))
            request = HTTPRequest("GET", "http", "127.0.0.1", server.port, "/")
            try:
                response = await sender.send(
                    request, _TIGHT, hosts=("127.0.0.1",), owner="any", repeatable=False
                )
            except HTTPError as error:
                return error.fault.value
            finally:
                await sender.aclose()
            assert len(response.body) <= _TIGHT.body
            assert all(name == name.lower() for name, _value in response.headers)
            return str(response.status)

    return asyncio.run(asked())


def event_streams(data: bytes) -> str:
    """Events: the same however the bytes were cut."""
    try:
        whole = EventStream(1000).add(data)
    except ValueError:
        return "too large"
    stream = EventStream(1000)
    pieces = [event for at in range(len(data)) for event in stream.add(data[at : at + 1])]
    assert pieces == whole
    return " ".join(sorted({event.type[:10] for event in whole})) or "none"


_ASKED = CallTarget(Server("shop"), "buy", "shop__buy", repeatable=False)
_BUY = Descriptor("shop__buy", output_schema={"type": "object"})
_CATALOGUE = Catalogue("shop", {"buy": {"name": "buy"}})


def mcp_lines(data: bytes) -> str:
    """Lines of an MCP server: messages, and results of what they answer; and the same lines to our own server."""
    splitter = MessageSplitter(re.compile(rb"\n"), lambda _head: sys.maxsize)
    lines = [bytes(line)[:-1] for at in range(0, len(data), 7) for line in splitter.add(data[at : at + 7])]
    assert lines == data.split(b"\n")[:-1]
    read_head(data)
    said = set()
    for line in [*lines, data]:
        for told in parse_messages(line.decode("utf-8", "replace")):
            said.add(type(told).__name__)
            if isinstance(told, JSONRPCResponse):
                said.add(_of_result(told.result))
            else:
                assert isinstance(told, ValueError | JSONRPCError | JSONRPCRequest | JSONRPCNotification)
        try:
            assert json_violation(parse_message(line), 200) is None
        except InvalidMessage as error:
            said.add(f"{error.code}")
    return " ".join(sorted(said))


def _of_result(raw: dict[str, Any]) -> str:
    try:
        result = result_of(raw, _ASKED, _BUY, _CATALOGUE, str)
    except InvalidAnswer as error:
        return error.message[:20]
    assert isinstance(result.outcome, Outcome)
    return result.outcome.value


def _model(name: str) -> Callable[[bytes], str]:
    async def asked(data: bytes) -> str:
        half = len(data) // 2
        async with speaking(name, in_chunks([piece for piece in (data[:half], data[half:]) if piece])) as (
            provider,
            _server,
        ):
            try:
                answer = await message(provider)
            except ProviderError as error:
                return error.code
            return " ".join(sorted({type(part).__name__ for part in answer.parts})) or "nothing"

    return lambda data: asyncio.run(asked(data))


def foreign_json(data: bytes) -> str:
    """JSON of models and servers: every reader agrees, and none takes a key that is there twice."""
    text = data.decode("utf-8", "replace")
    try:
        value = decode_json(text)
    except DuplicateKey:
        assert parse_arguments(text) is None
        assert parse_json_body(text) is None
        return "twice"
    except (ValueError, RecursionError):
        assert parse_arguments(text) is None or not text.strip()
        return "none"
    written = parse_arguments(text)
    assert (
        written == (value or {})
        if isinstance(value, dict | None) and json_violation(value) is None
        else written is None
    )
    return type(value).__name__


def locks(data: bytes) -> str:
    """Lock files: what is read is written again as it was."""
    text = data.decode("utf-8", "replace")
    contents, problems = parse_lock(text, "toolcrib.lock")
    assert (contents is None) is bool(problems)
    if contents is not None:
        again, faults = parse_lock(render_lock(*contents), "toolcrib.lock")
        assert not faults
        assert again == contents
    return _said(problems)


def json_with_comments(data: bytes) -> str:
    """Files of other clients: JSON without comments stays what it is."""
    value, problems = parse_json("a.json", without_comments(data))
    try:
        strict: JSON = decode_json(data)
    except (ValueError, RecursionError):
        return _said(problems)
    if not problems:
        assert value == strict
    return f"json {_said(problems)}"


def command_lines(data: bytes) -> str:
    """Arguments of the command line: the quick reader and the thorough one agree."""
    words = data.decode("utf-8", "replace").split("\n")
    quick = plain_arguments(words)
    try:
        thorough = read_arguments(words)
    except click.UsageError:
        assert quick is None
        return "refused"
    assert quick is None or quick == thorough
    return "good" if quick is None else "quick"


_YAML = _words(
    "a: b: -␣ [ ] { } , # ? | > & * ! % @ ` ' \" ⏎ ⏎␣␣ ⏎---⏎ ⏎...⏎ ~ null true 1 1.5 1e999 0x1F 0777 .inf .nan <<: &a *a !!str !!python/object \\u0041 \\ud800 \\x1b \\e \\U000E0041 {{ }} {% %} 2024-01-01 ␣ \t"
)
_JSON = _words(
    '{ } [ ] : , "a" "b" "" "\\u0041" "\\ud800" "\\n" 1 -0 1.5 1e999 -1e5 NaN Infinity true false null ⏎ ␣ {"a":1} {"a":1,"a":2} "\\'
)
_TOOL = _words(
    'name:␣t⏎ description:␣d⏎ input_schema:␣ output_schema:␣ {type:␣object} {type:␣string} properties:␣ required:␣[a] mock:␣ {result:␣1} {result:␣"{{args.a}}"} mode:␣mock⏎ rules: when: reply: {args:␣{a:␣1}} examples:␣[{args:␣{a:␣1}}]⏎ timeout:␣1s⏎ limits:␣ coerce:␣lenient⏎ tags:␣[x]⏎ $ref:␣#/$defs/a pattern:␣^(a+)+$ enum:␣[1,2] default:␣1 ⏎ ⏎␣␣ ⏎---⏎ scenario:␣s⏎ steps:␣[{call:␣t}]⏎ effects: store: rows: let: guards: error:␣{code:␣x} latency:␣1s for_each: { } [ ] : ,'
)
_EXPRESSION = _words(
    "{{ }} {% %} {# #} if else elif endif for in endfor args.a args rows n r r.id loop.index loop | ( ) [ ] . , : + - * / // % ** ~ == != < > and or not is none true 1 2.5 'x' \"y\" 10**9 length map select sort join(',') default(1) items tojson upper int round range(3) first last sum unique random() now() uuid() {{args.a}} {%for␣r␣in␣rows%} {%endfor%} {%if␣n%} {%endif%} ␣ ⏎"
)
_GO = _words(
    '{{ }} {{- -}} .a .b.c $ $.a $i $e := , | ( ) "x" `y` 1 -2 if else end range with define template block and or not eq ne lt gt len index printf "%s␣%d" toJson nil true {{if␣.a}} {{end}} {{range␣.c}} {{else}} {{/*␣*/}} {{.a}} }} {{ ␣ ⏎ \\'
)
_JMES = _words(
    "args rows n a b [0] [-1] [*] [] [?id==`1`] .* . | || && ! & @ ( ) { } , : `1` `{\"a\":1}` 'x' \"y\" [1:2] [::-1] [::0] length(@) keys(@) sort_by(rows,&id) max_by( map(&id,rows) to_number( join(',', contains( type( not_null( merge( ␣"
)
_URL = _words(
    "https:// http:// api.example.com example.com {{args.a}} {{␣args.b␣}} ${HOST} ${HOST:-x} / // .. . ? & = # @ : 443 80 [::1] 127.0.0.1 %2e %zz x- .json ; , + \\ ␣ é user:pass@ {{ }} $ ${"
)
_HTTP = tuple(
    piece.encode("latin-1")
    for piece in ("HTTP/1.1 200 OK\r\n", "HTTP/1.0 ", "HTTP/1.1 ", "100 Continue\r\n", "204 No Content\r\n", "301 Moved\r\n", "Content-Length: ", "Transfer-Encoding: chunked\r\n", "Content-Encoding: gzip\r\n", "Content-Encoding: deflate\r\n", "Connection: close\r\n", "Location: /x\r\n", "Set-Cookie: a=b\r\n", "X: ", "0", "5", "5\r\nhello\r\n", "0\r\n\r\n", "-1", "999999999999", "\r\n", "\n", "\r", "\r\n\r\n", ": ", "hello", "\x00", "\xff", " ", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "ffffffff\r\n")
)  # fmt: skip
_EVENTS = (b"\xff", b"\xc3", *(piece.encode() for piece in ("data:", "data: ", "event: ", "event: message_stop", "id: 1", "retry: 5", ":", "\n", "\r", "\r\n", "\n\n", "x", "{}", "\ufeff", "é", "[DONE]")))  # fmt: skip
_MCP = _words(
    '{"jsonrpc":"2.0", "id":1 "id":"x" "id":null ,"result":{ "method":"ping" ,"params":{} ,"error":{"code":-32600,"message":"x"} "content":[ {"type":"text","text":"hi"} {"type":"image","data":"AAAA","mimeType":"image/png"} ] } , "structuredContent":{"a":1} "isError":true "resultType":"complete" {"jsonrpc":"2.0","id":1,"result":{"content":[]}} [ \\ud800 \\u0000 NaN ⏎ : 1e999'
)
_OPENAI = (
    *_EVENTS,
    *_words(
        'data:␣{"choices":[{"index":0,"delta":{ "content":"hi" "role":"assistant" "tool_calls":[{"index":0,"id":"c1","function":{"name":"t","arguments":"{\\"a\\": 1}"}}] }}]}⏎⏎ "finish_reason":"stop" "finish_reason":"tool_calls" "usage":{"prompt_tokens":1,"completion_tokens":2} data:␣[DONE]⏎⏎ , {} [] null -1 "x" {"error":{"message":"no","type":"server_error"}}'
    ),
)
_RESPONSES = (
    *_EVENTS,
    *_words(
        'data:␣{"type":"response.output_text.delta","delta":"hi","output_index":0}⏎⏎ data:␣{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c","name":"t","arguments":""}}⏎⏎ data:␣{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{}"}⏎⏎ data:␣{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":1,"output_tokens":1},"output":[]}}⏎⏎ "type": "response.failed" "response.incomplete" "response": { } null [] 1 , "item" "output_index":-1'
    ),
)
_ANTHROPIC = (
    *_EVENTS,
    *_words(
        'data:␣{"type":"message_start","message":{"usage":{"input_tokens":1}}}⏎⏎ data:␣{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}⏎⏎ data:␣{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"t","input":{}}}⏎⏎ data:␣{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}⏎⏎ data:␣{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}⏎⏎ data:␣{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}⏎⏎ data:␣{"type":"message_stop"}⏎⏎ "type": "index":-1 null [] {} , 1 "thinking" "signature" "error"'
    ),
)
_LOCK = _words(
    '{"lock":1,"servers":{ "version":1 "servers": "shop":{ "endpoint":{"hash":"x","command":"y"} "info":{} "tools":{} } } , : "a" 1 null [] {"a":1,"a":1} "hash":"sha256:'
)
_COMMENTS = (*_JSON, *_words("// /* */ //x⏎ /*x*/ ,} ,] # '"))
_WORD = _words(
    'a=b a:=1 a:={} a:={"b":1} a:={"b":1,"b":2} a:=[1 a:=NaN a:=1e999 = := :=1 b= ⏎ a a:="\\ud800" a:="x" :'
)

TARGETS = (
    Target("yaml", yaml_documents, _YAML),
    Target("json", json_documents, _JSON),
    Target("descriptor", descriptors, (*_TOOL, *_YAML), 2.0),
    Target(
        "archive",
        archives,
        (
            b"PK\x03\x04",
            b"PK\x01\x02",
            b"PK\x05\x06",
            b"PK\x06\x06",
            b"PK\x07\x08",
            b"\x00\x00",
            b"\x08\x00",
            b"\xff\xff\xff\xff",
            b"pack.yaml",
            b"../x",
            b"a/",
            b"name: a\n",
        ),
    ),
    Target("expression", expressions, _EXPRESSION, 2.0),
    Target("go-template", go_templates, _GO),
    Target("jmespath", jmespath, _JMES),
    Target("url", urls, _URL),
    Target("http", http_answers, _HTTP),
    Target("events", event_streams, _EVENTS),
    Target("mcp", mcp_lines, _MCP, 2.0),
    Target("openai", _model("openai"), _OPENAI),
    Target("openai-responses", _model("openai_responses"), _RESPONSES),
    Target("anthropic", _model("anthropic"), _ANTHROPIC),
    Target("foreign-json", foreign_json, _JSON),
    Target("lock", locks, _LOCK),
    Target("jsonc", json_with_comments, _COMMENTS),
    Target("words", command_lines, _WORD),
)
