"""The request of an operation: parameters and body as arguments of a tool and as parts of a `live` block."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.formats.openapi_import.media_types import chosen_media_type, essence, form_of
from toolcrib.formats.openapi_import.names import argument_name, free_name
from toolcrib.formats.openapi_import.references import Node, Refused, shown
from toolcrib.formats.openapi_import.schemas import Part, Schemas, opened, opened_list
from toolcrib.http.headers import fault_of_name, is_token

_SCHEMA_2: Final = frozenset(
    (
        "type", "format", "items", "default", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength",
        "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "enum", "multipleOf", "x-nullable", "x-example",
        "allOf", "properties", "additionalProperties",
    )
)  # fmt: skip
"""The keywords of a schema that a parameter of Swagger 2 has directly."""

_COLLECTIONS: Final[Mapping[str, dict[str, JSON]]] = {
    "csv": {"explode": False},
    "multi": {},
    "ssv": {"style": "spaceDelimited"},
    "pipes": {"style": "pipeDelimited"},
    "tsv": {"style": "tabDelimited"},
}
_OWN_HEADERS: Final = frozenset(("accept", "content-type", "authorization"))
"""Headers that other parts of a description define (OpenAPI 3.1.1, "Parameter Object")."""

_PLAIN: Final = frozenset(
    ("type", "properties", "required", "title", "description", "additionalProperties", "default", "examples",
     "deprecated", "minProperties", "x-mcp-header")
)  # fmt: skip
"""Keywords of an object whose properties can be arguments beside others."""

_DATA_URI: Final = "(a `data:` URI)"
_BRANCHES: Final = 2_000
"""Maximum number of branches that are followed for an operation, to find what its values are."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEMPLATE: Final = re.compile(r"\{([^{}]*)\}")
_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\{}]")


class Told(NamedTuple):
    """A remark on the operation, as in `ImportRemark` without its key."""

    kind: str
    pointer: str
    message: str


class OperationRequest:
    """The request of one operation while it is converted.

    Attributes:
        live: Keys of the `live` block.
        properties: Name of an argument -> its schema, with links.
        required: The arguments that a call needs.
        rest: Further keywords of the input schema.
        parts: The schemas that these consist of.
        examples: Name of an argument -> an example of it.
        told: What there is to report.
    """

    def __init__(self, schemas: Schemas, *, swagger: bool) -> None:
        self.live: dict[str, Any] = {}
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self.rest: dict[str, Any] = {"additionalProperties": False}
        self.parts: list[Part] = []
        self.examples: dict[str, JSON] = {}
        self.told: list[Told] = []
        self._schemas = schemas
        self._swagger = swagger
        self._in_path: dict[str, str | dict[str, JSON]] = {}
        self._left = _BRANCHES

    def tell(self, kind: str, pointer: str, message: str) -> None:
        """Add a remark."""
        self.told.append(Told(kind, pointer, message))

    # Parameters.

    def add_parameters(self, nodes: list[Node], path: str) -> list[Node]:
        """Add the parameters of an operation; those of Swagger 2 that are a body are returned.

        Args:
            nodes: The parameters of the path, then those of the operation.
            path: The path, with its templates.
        """
        found: dict[tuple[str, str], Node] = {}
        for node in nodes:
            resolved = self._schemas.references.resolve(node)
            name, where = resolved.text("name"), resolved.text("in")
            if not name or not where:
                self.tell("repaired", node.place, "a parameter without `name` or `in` was removed")
                continue
            found[name.casefold() if where == "header" else name, where] = resolved
        named = _TEMPLATE.findall(path)
        body = []
        # Path parameters keep their names if another one has the same.
        for (name, where), node in sorted(found.items(), key=lambda item: item[0][1] != "path"):
            if where in {"body", "formData"}:
                body.append(node)
            elif where == "path" and name not in named:
                self.tell(
                    "repaired", node.place, f"the path has no `{{{shown(name)}}}`; the parameter was removed"
                )
            else:
                self._parameter(node, node.text("name"), where)
        for name in dict.fromkeys(named):
            if (name, "path") not in found and name not in self._in_path:
                self.tell("repaired", "", f"`{{{shown(name)}}}` of the path has no parameter; it is a text")
                argument = self._argument(name, "path", {"type": "string"}, required=True)
                self._in_path[name] = _expression(argument)
        return body

    def _parameter(self, node: Node, name: str, where: str) -> None:
        if where == "header" and (name.lower() in _OWN_HEADERS or fault_of_name(name) is not None):
            if name.lower() not in _OWN_HEADERS:
                self.tell("lost", node.place, f"the header `{shown(name)}` is set by the client")
            return
        if where == "cookie" and not is_token(name):
            raise Refused("invalid_name", node.place, f"`{shown(name)}` is not a valid name of a cookie")
        if where not in {"path", "query", "header", "cookie", "querystring"}:
            raise Refused(
                "invalid_operation", node.place, f"a parameter is in `{shown(where)}`, which does not exist"
            )
        content = node["content"]
        media_types = content.members() if isinstance(content.value, dict) else []
        if media_types:
            schema = media_types[0][1]["schema"]
        elif "schema" in node.value:
            schema = node["schema"]
        else:
            known = {key: value for key, value in node.value.items() if key in _SCHEMA_2}
            schema = replace(node, value=known)
        converted = self._converted(schema)
        required = where == "path" or node.value.get("required") is True
        argument = self._argument(
            name,
            where,
            _described(converted, node.text("description"), deprecated=node.value.get("deprecated") is True),
            required=required,
        )
        example = _example(node, media_types[0][1] if media_types else None, self._schemas)
        if example is not None:
            self.examples[argument] = example
        style = self._style(
            node, converted, where, json=bool(media_types) and form_of(media_types[0][0]) == "json"
        )
        self._place(name, where, argument, style)

    def _converted(self, node: Node) -> Any:
        part = self._schemas.part(node, "request")
        self.parts.append(part)
        return part.schema

    def _argument(self, name: str, where: str, schema: Any, *, required: bool, exact: bool = False) -> str:
        argument = name if exact else free_name(argument_name(name), where, self.properties)
        self.properties[argument] = schema
        if required:
            self.required.append(argument)
        return argument

    def _style(self, node: Node, schema: Any, where: str, *, json: bool) -> dict[str, JSON]:
        """How a parameter is serialized, as far as it differs from the usual way."""
        if json:
            return {"style": "json"}
        kinds = self._kinds(schema)
        if self._swagger:
            return (
                dict(_COLLECTIONS.get(node.text("collectionFormat") or "csv", {})) if "array" in kinds else {}
            )
        said = node.value.get("style")
        usual = "form" if where in {"query", "cookie"} else "simple"
        style = said if said in _STYLES.get(where, ()) else usual
        if said is not None and style != said:
            self.tell(
                "repaired",
                node.place,
                f"the style `{shown(said)}` does not exist in {where}; `{usual}` is used",
            )
        explode = node.value.get("explode")
        explode = explode if isinstance(explode, bool) else style in {"form", "deepObject", "cookie"}
        if node.value.get("allowReserved") is True:
            self.tell(
                "lost",
                node.place,
                "`allowReserved`: reserved characters are percent-encoded, which servers decode",
            )
        return _written_style(where, style, kinds, explode=explode)

    def _solved(self, schema: Any) -> Any:
        """A schema or the one that it refers to; any value is accepted once too many branches have been followed."""
        # Forty schemas that each combine the next one twice have a billion branches.
        self._left -= 1
        return self._schemas.solved(schema, "request") if self._left > 0 else True

    def _kinds(self, schema: Any) -> frozenset[str]:
        """The types that a value may have; empty if any."""
        schema = self._solved(schema)
        if not isinstance(schema, dict):
            return frozenset()
        said = schema.get("type")
        if said is not None:
            return frozenset(said if isinstance(said, list) else [said]) - {"null"}
        kinds: set[str] = set()
        for keyword in ("anyOf", "oneOf", "allOf"):
            for branch in schema.get(keyword, ()):
                inner = self._kinds(branch)
                if not inner and keyword != "allOf":
                    return frozenset()
                kinds |= inner
        if not kinds and "properties" in schema:
            return frozenset(("object",))
        return frozenset(kinds)

    def _place(self, name: str, where: str, argument: str, style: dict[str, JSON]) -> None:
        """Put an argument where its parameter is."""
        expression = _expression(argument)
        value: Any = {"value": expression, **style} if style else expression
        if where == "path":
            self._in_path[name] = value
        elif where == "querystring":
            # The name is not sent: the members of the object are the parameters (OpenAPI 3.2.0, 4.12).
            if style.get("style") == "json":
                raise Refused("invalid_operation", "", "a query string that is not a form cannot be sent")
            self.live.setdefault("query", {})[name] = {"value": expression, "style": "form"}
        else:
            key = {"query": "query", "header": "headers", "cookie": "cookies"}[where]
            self.live.setdefault(key, {})[name] = value

    def url(self, base: str, path: str) -> None:
        """Set the address, with the arguments of the path in it."""
        styled: dict[str, Any] = {}
        path = path.partition("#")[0]
        if not path.startswith("/"):
            path = f"/{path}"

        def placed(match: re.Match[str]) -> str:
            value = self._in_path[match[1]]
            if isinstance(value, str):
                return value
            plain = value["value"]
            if value.get("style") in {"label", "matrix"} and "explode" not in value:
                lead = "." if value["style"] == "label" else f";{match[1]}="
                return f"{lead}{plain}"
            name = argument_name(match[1])
            styled[name] = value
            return f"{{{name}}}"

        pieces = []
        last = 0
        for match in _TEMPLATE.finditer(path):
            pieces += [_encoded(path[last : match.start()]), placed(match)]
            last = match.end()
        pieces.append(_encoded(path[last:]))
        self.live["url"] = base.rstrip("/") + "".join(pieces)
        if styled:
            self.live["path"] = styled

    # Bodies.

    def add_body(self, node: Node, method: str) -> None:
        """Add the `requestBody` of OpenAPI 3."""
        body = self._schemas.references.resolve(node)
        content = self._schemas.references.resolve(body["content"])
        media = chosen_media_type(content.members(), self._schemas.references)
        if media is None:
            if content.value:
                raise Refused("invalid_operation", content.place, "the body has no media type")
            return
        required = body.value.get("required") is True
        if not self._allows_body(method, required=required, place=body.place):
            return
        self._other_types(content, media[0])
        self._body(media[0], media[1], required=required, description=body.text("description"))

    def add_swagger_body(self, nodes: list[Node], consumes: list[str], method: str) -> None:
        """Add the parameters of Swagger 2 that are a body."""
        whole = [node for node in nodes if node.text("in") == "body"]
        required = any(node.value.get("required") is True for node in nodes)
        if not nodes or not self._allows_body(method, required=required, place=nodes[0].place):
            return
        if whole:
            node = whole[0]
            types = [each for each in consumes if form_of(each) not in {"form", "multipart"}] or [
                "application/json"
            ]
            members: list[tuple[str, Node]] = [(each, node) for each in types]
            name, media = chosen_media_type(members, self._schemas.references) or members[0]
            self._body(
                name, media, required=node.value.get("required") is True, description=node.text("description")
            )
            return
        files = any(node.value.get("type") == "file" for node in nodes)
        multipart = files or (
            any(form_of(each) == "multipart" for each in consumes)
            and not any(form_of(each) == "form" for each in consumes)
        )
        fields = {}
        for node in nodes:
            known = {key: value for key, value in node.value.items() if key in _SCHEMA_2}
            schema = self._converted(replace(node, value=known))
            name = node.text("name")
            if node.value.get("required") is True:
                self.required.append(name)
            style = self._style(node, schema, "formData", json=False)
            fields[name] = (_described(schema, node.text("description")), style, "")
        self._fields(fields, multipart=multipart)

    def _allows_body(self, method: str, *, required: bool, place: str) -> bool:
        # RFC 9110, 9.3.1: content of GET and HEAD has no meaning; servers and proxies may reject the request.
        if method not in {"GET", "HEAD"}:
            return True
        if required:
            raise Refused(
                "body_not_allowed", place, f"a {method} request has no body, but this one requires it"
            )
        self.tell("lost", place, f"a {method} request has no body; it was removed")
        return False

    def _other_types(self, content: Node, name: str) -> None:
        others = [
            other
            for other, media in content.members()
            if other != name
            and isinstance(media.value, dict)
            and media.value.get("schema") != content[name]["schema"].value
        ]
        if others:
            told = ", ".join(f"`{shown(other)}`" for other in others[:5])
            self.tell(
                "lost", content.place, f"the body is sent as `{shown(name)}`; {told} have other schemas"
            )

    def _body(self, name: str, media: Node, *, required: bool, description: str) -> None:
        form = form_of(name)
        example = _example(media, media, self._schemas)
        if form == "json":
            self._json(name, media["schema"], required=required, description=description, example=example)
            return
        if form in {"form", "multipart"}:
            self._form(media, multipart=form == "multipart", example=example, description=description)
            return
        if essence(name).startswith("multipart/"):
            raise Refused(
                "media_type",
                media.place,
                f"a body `{shown(name)}` cannot be sent, only `multipart/form-data`",
            )
        if form == "text":
            schema: dict[str, Any] = {
                "type": "string",
                "description": description or f"The body, as `{essence(name)}`.",
            }
            if essence(name).endswith("xml") and media["schema"].value:
                self.tell("lost", media.place, "the schema of an XML body; the argument is its text")
            argument = self._argument("body", "body", schema, required=required)
            self.live["body"] = {"text": _expression(argument), "content_type": essence(name)}
            if isinstance(example, str):
                self.examples[argument] = example
            return
        schema = {"type": "string", "description": f"{description or 'The file'} {_DATA_URI}"}
        argument = self._argument("body", "body", schema, required=required)
        content_type = {} if "*" in name or not essence(name) else {"content_type": essence(name)}
        self.live["body"] = {"file": _expression(argument), **content_type}

    def _json(self, name: str, node: Node, *, required: bool, description: str, example: Any) -> None:
        schema = self._converted(node)
        plain = self._plain_object(schema)
        if essence(name) not in {"application/json", "text/json"} and "*" not in name:
            self.live.setdefault("headers", {})["Content-Type"] = name
        solved = self._schemas.solved(schema, "request")
        alone = not self.properties and isinstance(solved, dict) and solved.get("type") == "object"
        if alone and (required or not solved.get("required")):
            self.rest = {
                key: value for key, value in solved.items() if key not in {"properties", "required", "type"}
            }
            self.properties = dict(solved.get("properties", {}))
            self.required = list(solved.get("required", ()))
            self.live["body"] = {"from": "args"}
            if isinstance(example, dict):
                self.examples = dict(example)
            return
        flat = (
            plain is not None
            and plain.get("properties")
            and (required or not plain.get("required"))
            and not (plain.keys() & {"additionalProperties"} and plain["additionalProperties"] is not False)
        )
        if plain is not None and flat:
            self._flattened(plain, example)
            return
        argument = self._argument("body", "body", _described(schema, description), required=required)
        self.live["body"] = {"json": _expression(argument)}
        if example is not None:
            self.examples[argument] = example

    def _flattened(self, plain: dict[str, Any], example: Any) -> None:
        """Make the properties of the body arguments beside the parameters."""
        properties = plain["properties"]
        for argument in [name for name in self.properties if name in properties]:
            self._rename(argument, free_name(argument, "parameter", {**self.properties, **properties}))
        self.properties |= properties
        self.required += plain.get("required", ())
        self.live["body"] = {"from": "args"}
        if isinstance(example, dict):
            self.examples |= example

    def _rename(self, old: str, new: str) -> None:
        """Rename an argument, because a property of the body has its name."""
        self.properties = {new if name == old else name: schema for name, schema in self.properties.items()}
        self.required = [new if name == old else name for name in self.required]
        if old in self.examples:
            self.examples[new] = self.examples.pop(old)
        before, after = _expression(old), _expression(new)
        for key in ("query", "headers", "cookies"):
            if key in self.live:
                self.live[key] = {
                    name: _replaced(value, before, after) for name, value in self.live[key].items()
                }
        self._in_path = {name: _replaced(value, before, after) for name, value in self._in_path.items()}

    def _plain_object(self, schema: Any) -> dict[str, Any] | None:
        """An object with nothing but properties, also from an `allOf` of such; None for any other schema."""
        schema = self._solved(schema)
        if not isinstance(schema, dict):
            return None
        branches = schema.get("allOf", [])
        own = {key: value for key, value in schema.items() if key != "allOf"}
        if own.keys() - _PLAIN or own.get("type", "object") != "object":
            return None
        if not branches:
            return own if "properties" in own or own.get("type") == "object" else None
        merged: dict[str, Any] = {"properties": {}, "required": []}
        for branch in [*branches, own]:
            plain = self._plain_object(branch) if branch is not own else own
            if plain is None or "additionalProperties" in plain or "minProperties" in plain:
                return None
            known = plain.get("properties", {})
            if any(merged["properties"].get(name, known[name]) != known[name] for name in known):
                return None
            merged["properties"] |= known
            merged["required"] += [
                name for name in plain.get("required", ()) if name not in merged["required"]
            ]
        return {
            "type": "object",
            **merged,
            **{key: own[key] for key in ("title", "description") if key in own},
        }

    def _loose_object(self, schema: Any, place: str, depth: int = 0) -> dict[str, Any]:
        """The properties of an object, or of all its forms if it has several."""
        plain = self._plain_object(schema)
        if plain is not None:
            return plain
        schema = self._solved(schema)
        made: dict[str, Any] = {"properties": {}, "required": []}
        if not isinstance(schema, dict) or depth > 8:
            return made
        for keyword in ("allOf", "anyOf", "oneOf"):
            for branch in schema.get(keyword, ()):
                inner = self._loose_object(branch, "", depth + 1)
                made["properties"] |= inner.get("properties", {})
                if keyword == "allOf":
                    made["required"] += inner.get("required", ())
        made["properties"] |= schema.get("properties", {})
        made["required"] += schema.get("required", ())
        if place:
            self.tell(
                "lost",
                place,
                "the forms of the body are merged into one; which fields belong together is not checked",
            )
        return made

    def _form(self, media: Node, *, multipart: bool, example: Any, description: str) -> None:
        schema = self._converted(media["schema"])
        plain = self._loose_object(schema, media.place)
        properties = plain.get("properties", {})
        if not properties:
            if multipart:
                raise Refused("no_fields", media.place, "the fields of a multipart body are not described")
            argument = self._argument("body", "body", _described(schema, description), required=False)
            self.live["body"] = {"form": {"body": {"value": _expression(argument), "style": "form"}}}
            return
        encodings = media["encoding"]
        for argument in [name for name in self.properties if name in properties]:
            self._rename(argument, free_name(argument, "parameter", {**self.properties, **properties}))
        self.required += [name for name in dict.fromkeys(plain.get("required", ())) if name in properties]
        fields = {
            name: (inner, *self._encoding(encodings[name], inner, multipart=multipart))
            for name, inner in properties.items()
        }
        self._fields(fields, multipart=multipart)
        if isinstance(example, dict):
            self.examples |= {name: value for name, value in example.items() if name in properties}

    def _encoding(self, node: Node, schema: Any, *, multipart: bool) -> tuple[dict[str, JSON], str]:
        """The style of a field and its media type."""
        kinds = self._kinds(schema)
        said = node.value if isinstance(node.value, dict) else {}
        content_type = node.text("contentType")
        if said.get("headers"):
            self.tell("lost", node.place, "headers of a part are not sent")
        if multipart:
            return {}, content_type or ("application/json" if "object" in kinds else "")
        if "style" in said or "explode" in said:
            style = said.get("style") or "form"
            explode = said.get("explode")
            if style not in _STYLES["query"]:
                style = "form"
            explode = explode if isinstance(explode, bool) else style in {"form", "deepObject"}
            return _written_style("query", style, kinds, explode=explode), ""
        # OpenAPI 3.1.1, "Encoding Object": without a style, an object is sent as JSON.
        return ({"style": "json"} if "object" in kinds or self._of_objects(schema) else {}), ""

    def _of_objects(self, schema: Any) -> bool:
        schema = self._solved(schema)
        items = schema.get("items") if isinstance(schema, dict) else None
        return items is not None and not self._kinds(items).isdisjoint({"object", "array"})

    def _fields(self, fields: Mapping[str, tuple[Any, dict[str, JSON], str]], *, multipart: bool) -> None:
        """Make the fields of a form arguments of their names."""
        written: dict[str, Any] = {}
        for name, (schema, style, content_type) in fields.items():
            argument = self._argument(name, "body", schema, required=False)
            self.required = [argument if each == name else each for each in self.required]
            expression = _expression(argument)
            if not multipart:
                written[name] = {"value": expression, **style} if style else expression
            elif self._is_file(schema):
                self.properties[argument] = self._file_schema(schema)
                one = content_type and "," not in content_type and "*" not in content_type
                written[name] = {"file": expression, **({"content_type": content_type} if one else {})}
            elif content_type and "," not in content_type and content_type != "text/plain":
                written[name] = {"value": expression, "content_type": content_type}
            else:
                written[name] = expression
        self.live["body"] = {"multipart" if multipart else "form": written}

    def _is_file(self, schema: Any) -> bool:
        schema = self._solved(schema)
        if not isinstance(schema, dict):
            return False
        if schema.get("type") == "array" or (isinstance(schema.get("items"), dict) and "type" not in schema):
            return self._is_file(schema.get("items"))
        if any(
            self._is_file(branch)
            for keyword in ("anyOf", "oneOf", "allOf")
            for branch in schema.get(keyword, ())
        ):
            return True
        binary = schema.get("contentMediaType") and "contentEncoding" not in schema
        # In 3.1, a part without a type is bytes.
        return schema.get("format") == "binary" or bool(binary)

    def _file_schema(self, schema: Any) -> Any:
        schema = self._solved(schema)
        text = schema.get("description", "") if isinstance(schema, dict) else ""
        file = {"type": "string", "description": f"{text or 'A file'} {_DATA_URI}"}
        if isinstance(schema, dict) and (schema.get("type") == "array" or "items" in schema):
            kept = {key: schema[key] for key in ("minItems", "maxItems") if key in schema}
            return {"type": "array", "items": file, **kept}
        return file

    def input_schema(self) -> dict[str, Any]:
        """The schema of the arguments, with links."""
        required = [*dict.fromkeys(self.required)]
        made: dict[str, Any] = {"type": "object"}
        if self.properties:
            made["properties"] = opened(self.properties)
        if required:
            made["required"] = required
        return opened({**made, **self.rest})


_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form", "cookie"),
}
_COMPOUND: Final = frozenset(("array", "object"))


def _written_style(where: str, style: str, kinds: frozenset[str], *, explode: bool) -> dict[str, JSON]:
    """The keys of a styled value; empty if the usual serialization is meant."""
    compound = bool(kinds & _COMPOUND) or not kinds
    objects = "object" in kinds
    if where == "path":
        if style != "simple":
            return {"style": style, **({"explode": explode} if bool(kinds & _COMPOUND) else {})}
        return {"style": "simple", **({"explode": True} if explode else {})} if objects else {}
    if where == "header":
        return {"style": "simple", **({"explode": True} if explode else {})} if objects else {}
    if where == "cookie":
        return {"style": "form"} if kinds & _COMPOUND else {}
    if not compound or not kinds:
        return {}
    if style == "deepObject":
        return {"style": "deepObject"}
    if style == "form":
        told: dict[str, JSON] = {} if explode else {"explode": False}
        return {"style": "form", **told} if objects else told
    # Exploded, the delimiters are not used: each item is a parameter.
    return ({"style": "form"} if objects else {}) if explode else {"style": style}


def _expression(argument: str) -> str:
    if _IDENTIFIER.fullmatch(argument):
        return f"{{{{ args.{argument} }}}}"
    quote = '"' if "'" in argument else "'"
    return f"{{{{ args[{quote}{argument}{quote}] }}}}"


def _replaced(value: Any, before: str, after: str) -> Any:
    if isinstance(value, dict):
        return {key: after if item == before else item for key, item in value.items()}
    return after if value == before else value


def _encoded(text: str) -> str:
    return _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text).replace(
        "$", "%24"
    )


def _described(schema: Any, description: str, *, deprecated: bool = False) -> Any:
    """A schema with the description of its parameter, which is about its use here."""
    from toolcrib.formats.openapi_import.schemas import SchemaLink  # noqa: PLC0415

    beside: dict[str, Any] = {"description": description} if description else {}
    if deprecated:
        beside["deprecated"] = True
    if not beside:
        return schema
    if isinstance(schema, SchemaLink):
        return SchemaLink(schema.key, {**schema.beside, **beside})
    if isinstance(schema, dict):
        return opened({**beside, **{key: value for key, value in schema.items() if key not in beside}})
    return opened({**beside, "allOf": opened_list([schema])}) if schema is not True else beside


def _example(node: Node, media: Node | None, schemas: Schemas) -> Any:
    """The first example of a parameter or media type; None if it has none."""
    for each in filter(None, (node, media)):
        if isinstance(each.value, dict) and each.value.get("example") is not None:
            return each.value["example"]
        for _name, example in each["examples"].members():
            try:
                resolved = schemas.references.resolve(example)
            except Refused:
                continue
            if isinstance(resolved.value, dict):
                for key in ("dataValue", "value"):
                    if resolved.value.get(key) is not None:
                        return resolved.value[key]
    return None
