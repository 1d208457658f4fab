"""Tools of a UTCP manual (1.0 and later, and 0.x as far as it has the same parts).

Each call template becomes a block: `http` and `streamable_http` become `live`, `text` a mock with its content, `cli` becomes
`exec`, `mcp` becomes `mcp`. Arguments are sent as UTCP sends them: in the path, as the body, in headers, and the rest in the
query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus

from toolcrib.expressions import escape_expressions
from toolcrib.formats.http_samples import Unconvertible, damage
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.request_names import name_of_words, unique_names
from toolcrib.formats.sampled_tools import reading
from toolcrib.formats.secret_names import is_secret_name
from toolcrib.formats.shell_words import ShellCommand, UnclosedQuote, commands_of
from toolcrib.formats.tool_parts import (
    file_block,
    input_schema_of,
    properties_of,
    quoted,
    secret_or_variable,
    server_remark,
    without_nulls,
)
from toolcrib.http.headers import fault_of_name

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z0-9_]+)\}|\$([A-Za-z0-9_]+)")
_PATH_ARGUMENT: Final = re.compile(r"(?<!\$)\{([^{}]+)\}")
_PLACEHOLDER: Final = re.compile(r"UTCP_ARG_([a-zA-Z0-9_]+?)_UTCP_END")
_SHELL_SYNTAX: Final = re.compile(r"[|&;<>()$`*?\[\]~#!{}\n]")
"""What makes a command need a shell, outside of placeholders."""

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"


class _Block(NamedTuple):
    """What a call template becomes.

    Attributes:
        members: Members of the descriptor.
        remarks: Kind and message of each remark.
    """

    members: dict[str, Any]
    remarks: Sequence[tuple[str, str]] = ()


def tools_of_utcp(document: Mapping[str, Any] | Sequence[Any]) -> ImportedTools:
    """The tools of a manual. A tool without a counterpart is refused, and the others are not.

    Args:
        document: The manual, or its list of tools.
    """
    listed = document.get("tools") if isinstance(document, Mapping) else document
    root = "/tools" if isinstance(document, Mapping) else ""
    tools = listed if isinstance(listed, list) else []
    names = unique_names(_name(tool) for tool in tools)
    made: list[ImportedTool] = []
    refused: list[ImportRefusal] = []
    remarks: list[ImportRemark] = []
    keys: set[str] = set()
    for place, (tool, name) in enumerate(zip(tools, names, strict=True)):
        pointer = f"{root}/{place}"
        key = str(tool.get("name", pointer)) if isinstance(tool, dict) else pointer
        key = key if key not in keys else f"{key} ({place + 1})"
        keys.add(key)
        try:
            converted = _tool(tool, name)
        except Unconvertible as why:
            refused.append(ImportRefusal(key, why.reason, f"{pointer}/tool_call_template", str(why)))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            refused.append(
                ImportRefusal(key, "damaged_tool", pointer, f"the tool is damaged: {damage(error)}")
            )
        else:
            made.append(ImportedTool(key, converted.members))
            remarks += (ImportRemark(kind, key, pointer, message) for kind, message in converted.remarks)
    return ImportedTools(made, refused, remarks)


def _name(tool: Any) -> str:
    said = tool.get("name") if isinstance(tool, dict) else None
    # Names of UTCP contain dots between the manual and the tool, which not every provider allows.
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", said).strip("_") if isinstance(said, str) else ""
    return plain if 0 < len(plain) <= 64 and not plain[0].isdigit() else name_of_words(plain.split("_"))


def _tool(tool: Mapping[str, Any], name: str) -> _Block:
    remarks: list[tuple[str, str]] = []
    members: dict[str, Any] = {"name": name}
    if tool.get("description"):
        members["description"] = str(tool["description"])
    if tool.get("tags"):
        members["tags"] = [*dict.fromkeys(str(tag) for tag in tool["tags"])]
    inputs, repairs = input_schema_of(tool.get("inputs"))
    members["input_schema"] = inputs
    remarks += (("repaired", f"`inputs`: {repair}") for repair in repairs)
    outputs = without_nulls(tool.get("outputs"))
    if isinstance(outputs, dict) and outputs:
        # UTCP declares results and does not check them.
        members |= {"output_schema": outputs, "on_invalid_result": "warn"}
    size = tool.get("average_response_size")
    if isinstance(size, int) and size > 0:
        members["estimate"] = {"output": size}
    template = tool.get("tool_call_template", tool.get("tool_provider"))
    if not isinstance(template, dict):
        raise Unconvertible("no_call_template", "it has no call template")
    kind = str(template.get("call_template_type", template.get("provider_type", template.get("type", ""))))
    convert = _CONVERTERS.get(kind)
    if convert is None:
        raise Unconvertible(
            f"call_template_{kind or 'missing'}"[:60], f"the call template `{kind}` has no counterpart"
        )
    block = convert(str(tool.get("name", "")), template, members)
    return _Block({**members, **block.members}, (*remarks, *block.remarks))


# -- HTTP -----------------------------------------------------------------------------------------------------------


def with_environment(text: str) -> str:
    """A text of UTCP with its variables (`$NAME`, `${NAME}`) as `${NAME}`, and everything else literal."""
    pieces, at = [], 0
    for match in _VARIABLE.finditer(text):
        pieces += [
            str(escape_expressions(text[at : match.start()])),
            f"${{{_environment(match[1] or match[2])}}}",
        ]
        at = match.end()
    return "".join((*pieces, str(escape_expressions(text[at:]))))


def _environment(name: str) -> str:
    return name if re.match(r"[A-Za-z_]", name) else f"V{name}"


def _http(_name: str, template: Mapping[str, Any], members: Mapping[str, Any]) -> _Block:
    method = str(template.get("http_method") or "GET").upper()
    if method not in _METHODS:
        raise Unconvertible("method", f"the method `{method}` is not one that `live` sends")
    left = dict(properties_of(members["input_schema"]))
    live: dict[str, Any] = {} if method == "GET" else {"method": method}
    address, _, query_text = str(template["url"]).partition("?")
    live["url"] = _url(address, left)
    query = _written_query(query_text, left)
    headers = {
        str(name): with_environment(str(value)) for name, value in (template.get("headers") or {}).items()
    }
    for field in template.get("header_fields") or ():
        if left.pop(field, None) is not None:
            headers[field] = f"{{{{ {reading(field)} }}}}"
    remarks: list[tuple[str, str]] = []
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    kind = kind or str(template.get("content_type") or _JSON)
    body_field = template.get("body_field", "body")
    body_schema = left.pop(body_field, None) if body_field else None
    if body_schema is not None:
        if method in {"GET", "HEAD"}:
            raise Unconvertible(
                "body_of_get", f"it is a {method} request with a body, which `live` does not send"
            )
        live["body"] = _body(str(body_field), body_schema, kind, remarks)
    headers = {
        name: value
        for name, value in headers.items()
        if name.lower() != "content-type"
        or (body_schema is not None and "json" in live["body"] and value != _JSON)
    }
    for name in [*headers]:
        fault = fault_of_name(name)
        if fault is not None:
            del headers[name]
            remarks.append(("lost", f"the header `{name}`: {fault.hint}"))
    query |= {name: f"{{{{ {reading(name)} }}}}" for name in left}
    live |= {key: value for key, value in (("query", query), ("headers", headers)) if value}
    auth = _auth(template.get("auth"), live["url"], remarks)
    live |= {"auth": auth} if auth else {}
    return _Block({"live": live}, remarks)


def _url(address: str, left: dict[str, Any]) -> str:
    if not re.match(r"https?://|\$", address):
        raise Unconvertible("invalid_url", "its URL does not begin with `http://` or `https://`")
    pieces = _PATH_ARGUMENT.split(address)
    for name in pieces[1::2]:
        left.pop(name, None)
    return "".join(
        f"{{{{ {reading(piece)} }}}}" if place % 2 else _literal(piece) for place, piece in enumerate(pieces)
    )


def _literal(text: str) -> str:
    return _VARIABLE.sub(lambda match: f"${{{_environment(match[1] or match[2])}}}", text)


def _written_query(text: str, left: dict[str, Any]) -> dict[str, Any]:
    """The parameters that the URL contains."""
    found: dict[str, Any] = {}
    for part in text.split("&"):
        name, _, value = part.partition("=")
        match = _PATH_ARGUMENT.fullmatch(value)
        if match is not None:
            left.pop(match[1], None)
            found[unquote_plus(name)] = f"{{{{ {reading(match[1])} }}}}"
        elif name:
            found[unquote_plus(name)] = with_environment(unquote_plus(value))
    return found


def _body(field: str, schema: Any, kind: str, remarks: list[tuple[str, str]]) -> dict[str, Any]:
    value = f"{{{{ {reading(field)} }}}}"
    essence = kind.partition(";")[0].strip().lower()
    if essence.endswith(("/json", "+json")):
        return {"json": value}
    names = properties_of(schema)
    if essence == _FORM and names:
        return {"form": {name: f"{{{{ {reading(field)}[{quoted(name)}] }}}}" for name in names}}
    if isinstance(schema, dict) and schema.get("type") not in {None, "string"}:
        remarks.append(("lost", f"`{field}` is sent as a text of the type `{kind}`"))
    return {"text": value, "content_type": kind}


def _auth(said: Any, url: str, remarks: list[tuple[str, str]]) -> dict[str, Any] | None:
    if not isinstance(said, dict):
        return None
    kind = said.get("auth_type")

    def credential(key: str, purpose: str) -> str:
        return secret_or_variable(_literal(str(said.get(key) or "")), purpose, url, remarks)

    if kind == "api_key":
        key, name = _literal(str(said["api_key"])), str(said.get("var_name") or "X-Api-Key")
        place = str(said.get("location") or "header")
        scheme, space, token = key.partition(" ")
        if place == "header" and name.lower() == "authorization" and scheme.lower() == "bearer" and space:
            token = secret_or_variable(token.strip(), "token", url, remarks)
            return {"type": "http", "scheme": "bearer", "token": token}
        return {
            "type": "apiKey",
            "in": place,
            "name": name,
            "value": secret_or_variable(key, "key", url, remarks),
        }
    if kind == "basic":
        user, password = credential("username", "user"), credential("password", "password")
        return {"type": "http", "scheme": "basic", "username": user, "password": password}
    if kind == "oauth2":
        scheme_of: dict[str, Any] = {
            "type": "oauth2",
            "flow": "client_credentials",
            "token_url": _literal(str(said["token_url"])),
            "client_id": credential("client_id", "client id"),
            "client_secret": credential("client_secret", "client secret"),
            # UTCP sends them in the body first.
            "client_auth": "body",
        }
        return scheme_of | ({"scopes": str(said["scope"]).split()} if said.get("scope") else {})
    remarks.append(("lost", f"its authentication `{kind}`"))
    return None


def _streamed(name: str, template: Mapping[str, Any], members: Mapping[str, Any]) -> _Block:
    usual = {"body_field": None, "content_type": "application/octet-stream", **template}
    block = _http(name, usual, members)
    live = block.members["live"]
    timeout = template.get("timeout")
    more: dict[str, Any] = {}
    if isinstance(timeout, int) and timeout > 0:
        more["timeout"] = f"{min(timeout, 600_000)}ms"
    return _Block(
        {**more, "live": live}, (*block.remarks, ("lost", "the chunks of its response are one result"))
    )


def _events(name: str, template: Mapping[str, Any], members: Mapping[str, Any]) -> _Block:
    block = _http(name, {"body_field": None, **template}, members)
    live = {**block.members["live"], "accept": "text/event-stream", "response": {"as": "text"}}
    lost = ("lost", "its events are one text, which is the result when the server ends the stream")
    return _Block({"live": live}, (*block.remarks, lost))


# -- Text, files, programs, servers ---------------------------------------------------------------------------------


def _content(_name: str, template: Mapping[str, Any], _members: Mapping[str, Any]) -> _Block:
    content = template.get("content")
    if not isinstance(content, str):
        raise Unconvertible("no_content", "its call template has no `content`")
    return _Block(
        {"mode": "mock", "mock": {"result": escape_expressions(content)}, "output_schema": {"type": "string"}}
    )


def _file(_name: str, template: Mapping[str, Any], _members: Mapping[str, Any]) -> _Block:
    path = template.get("file_path", template.get("path"))
    if not isinstance(path, str) or not path:
        raise Unconvertible("no_content", "its call template has no `file_path`")
    return _Block(file_block(with_environment(path)))


def _program(_name: str, template: Mapping[str, Any], members: Mapping[str, Any]) -> _Block:
    remarks: list[tuple[str, str]] = []
    commands = template.get("commands")
    if commands is None and isinstance(template.get("command"), str):
        commands = [template]
    if commands is None and "command_name" in template:
        commands = [{"command": _of_0_x(str(template["command_name"]), members)}]
    steps = [(str(each["command"]), each.get("append_to_final_output")) for each in commands or ()]
    if not steps:
        raise Unconvertible("no_command", "its call template has no command")
    names = properties_of(members["input_schema"])
    block: dict[str, Any] = {}
    words = _words(steps[0][0]) if len(steps) == 1 else None
    if words is not None:
        block["command"] = words
    else:
        # The arguments are variables of the shell, so that it never reads their values as a part of the script.
        block["command"] = ["bash", "-c", _script(steps)]
        used = dict.fromkeys(name for command, _ in steps for name in _PLACEHOLDER.findall(command))
        block["env"] = {f"UTCP_ARG_{name}": f"{{{{ args[{quoted(name)}] | default('') }}}}" for name in used}
        remarks.append(("lost", "its commands need `bash`, which must be installed"))
    unknown = {name for command, _ in steps for name in _PLACEHOLDER.findall(command)} - set(names)
    if unknown:
        raise Unconvertible(
            "unknown_argument",
            f"its command uses arguments that it does not have: {', '.join(sorted(unknown))}",
        )
    env = {str(key): with_environment(str(value)) for key, value in (template.get("env_vars") or {}).items()}
    env |= {
        str(key): f"${{{key}:-}}"
        for key in template.get("inherit_env_vars") or ()
        if key not in {"PATH", "HOME"}
    }
    if env:
        block["env"] = {**block.get("env", {}), **env}
    secret = [key for key, value in env.items() if is_secret_name(key) and "${" not in value]
    for key in secret:
        block["env"][key] = f"${{{key}}}"
        remarks.append(("secret", f"the variable `{key}` of its program is `${{{key}}}`; set it"))
    if template.get("working_dir"):
        block["cwd"] = with_environment(str(template["working_dir"]))
    output = members.get("output_schema")
    if isinstance(output, dict) and output.get("type") in {"object", "array"}:
        block["wire"] = "json"
    return _Block({"exec": block}, remarks)


def _of_0_x(command: str, members: Mapping[str, Any]) -> str:
    """The command of UTCP 0.x, which passes each argument as an option."""
    names = properties_of(members["input_schema"])
    return " ".join([command, *(f"--{name} UTCP_ARG_{name}_UTCP_END" for name in names)])


def _words(command: str) -> list[str] | None:
    """The words of a command, with expressions for its arguments; None if it needs a shell."""
    plain = _PLACEHOLDER.sub("x", command)
    if _SHELL_SYNTAX.search(plain):
        return None
    try:
        (read,) = list[ShellCommand](commands_of(command))
    except (UnclosedQuote, ValueError):
        return None
    if not read.words or _PLACEHOLDER.search(read.words[0]):
        return None
    return [_expressions(word) for word in read.words]


def _expressions(word: str) -> str:
    pieces = _PLACEHOLDER.split(word)
    return "".join(
        f"{{{{ {reading(piece)} }}}}" if place % 2 else str(escape_expressions(piece))
        for place, piece in enumerate(pieces)
    )


def _script(steps: Sequence[tuple[str, Any]]) -> str:
    """The script of several commands: each one's output is a variable, and some are printed at the end, as UTCP does."""
    lines = [
        f"CMD_{place}_OUTPUT=$({_with_shell_variables(command)} 2>&1)"
        for place, (command, _) in enumerate(steps)
    ]
    last = len(steps) - 1
    lines += (
        f'echo "${{CMD_{place}_OUTPUT}}"'
        for place, (_, shown) in enumerate(steps)
        if (place == last if shown is None else shown)
    )
    return str(escape_expressions("\n".join(lines))).replace("{{ '$' ~ '{' }}", "$${")


def _with_shell_variables(command: str) -> str:
    pieces: list[str] = []
    at, quote = 0, ""
    while at < len(command):
        match = _PLACEHOLDER.match(command, at)
        if match is not None:
            variable = f"${{UTCP_ARG_{match[1]}}}"
            pieces.append({"": f'"{variable}"', '"': variable, "'": f"'\"{variable}\"'"}[quote])
            at = match.end()
            continue
        sign = command[at]
        if sign == "\\" and quote != "'":
            pieces.append(command[at : at + 2])
            at += 2
            continue
        if sign in "'\"" and quote in {"", sign}:
            quote = "" if quote else sign
        pieces.append(sign)
        at += 1
    return "".join(pieces)


def _server(name: str, template: Mapping[str, Any], _members: Mapping[str, Any]) -> _Block:
    config = template.get("config")
    servers = config.get("mcpServers") if isinstance(config, dict) else None
    if servers is None and ("command" in template or "url" in template):
        # Other libraries than the one in Python write the server itself.
        servers = {str(template.get("name") or "server"): template}
    if not isinstance(servers, dict) or not servers:
        raise Unconvertible("no_server", "its call template has no server in `config.mcpServers`")
    # A name of UTCP is `manual.server.tool`, `server.tool` or `tool`.
    server = next((each for each in servers if f".{each}." in f".{name}"), next(iter(servers)))
    tool = name.rpartition(f"{server}.")[2] if f"{server}." in name else name.rpartition(".")[2]
    told = server_remark(str(server), servers[server])
    return _Block({"mode": "mcp", "mcp": {"server": str(server), "tool": tool}}, [told])


_CONVERTERS: Final = {
    "http": _http,
    "streamable_http": _streamed,
    "http_stream": _streamed,
    "sse": _events,
    "text": _content,
    "file": _file,
    "cli": _program,
    "mcp": _server,
}
"""Type of a call template -> its conversion."""
