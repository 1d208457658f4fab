"""Servers and security schemes of a description, as address and `auth` of a `live` block."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from toolcrib.core.model import JSON
from toolcrib.formats.openapi_import.names import variable_name
from toolcrib.formats.openapi_import.references import Node, References, Refused, shown
from toolcrib.http.headers import fault_of_name, is_token

_TEMPLATE: Final = re.compile(r"\{([^{}]*)\}")
_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)
_NOT_IN_DEFAULT: Final = re.compile(r"[{}$\s]")


class Servers:
    """The address of an operation.

    Args:
        name: The name of the API, for names of variables.
        chosen: The address that the user chose; empty for that of the description.
        source: The URL of the description, if it has one, which relative addresses refer to.
    """

    def __init__(self, name: str, chosen: str = "", source: str = "") -> None:
        self._name = name
        self._chosen = chosen
        self._source = source
        self.told: dict[tuple[str, str, str], None] = {}

    def of(self, *levels: Node) -> str:
        """The address by the innermost level that names servers.

        Args:
            levels: `servers` of the operation, of its path and of the description.
        """
        if self._chosen:
            return self._chosen
        for node in levels:
            servers = [each for each in node.items() if isinstance(each.value, dict) and each.text("url")]
            if servers:
                if len(servers) > 1:
                    others = ", ".join(f"`{shown(each.text('url'))}`" for each in servers[1:6])
                    self.told[
                        "lost", node.place, f"the first server is used, not {others}; choose with `--server`"
                    ] = None
                return self._address(servers[0])
        return self._relative("", "")

    def of_swagger(self, root: Node, operation: Node) -> str:
        """The address by `schemes`, `host` and `basePath` of Swagger 2."""
        if self._chosen:
            return self._chosen
        base = root.text("basePath")
        host = root.text("host")
        if not host:
            return self._relative(base, root.place)
        said = operation.value.get("schemes") or root.value.get("schemes")
        schemes = [each for each in said if each in {"https", "http"}] if isinstance(said, list) else []
        scheme = "https" if "https" in schemes or not schemes else "http"
        return f"{scheme}://{host}{base if not base or base.startswith('/') else '/' + base}"

    def _address(self, server: Node) -> str:
        variables = server["variables"]

        def value(match: re.Match[str]) -> str:
            variable = variables[match[1]]
            name = variable_name(self._name, match[1])
            default = variable.value.get("default") if isinstance(variable.value, dict) else None
            if isinstance(default, int | float):
                default = str(default)
            if not isinstance(default, str) or _NOT_IN_DEFAULT.search(default):
                return f"${{{name}}}"
            return f"${{{name}:-{default}}}"

        written = server.text("url")
        url = _TEMPLATE.sub(
            value, written.replace("$", "$$") if "${" not in written else written.replace("${", "{")
        )
        if _SCHEME.match(url) or url.startswith("${"):
            return url
        if url.startswith("//"):
            return f"https:{url}"
        host = url.split("/")[0]
        if "." in host and not url.startswith((".", "/")):
            self.told["repaired", server.place, f"`{shown(written)}` has no scheme; `https://` is used"] = (
                None
            )
            return f"https://{url}"
        return self._relative(url, server.place)

    def _relative(self, path: str, place: str) -> str:
        if urlsplit(self._source).scheme in {"http", "https"}:
            return urljoin(self._source, path or "/")
        name = variable_name(self._name, "URL")
        told = f"`{shown(path)}` is a relative address" if path else "the description names no server"
        self.told[
            "repaired", place, f"{told}; set `${{{name}}}` to the address of the server, or use `--server`"
        ] = None
        path = path.lstrip(".")
        return f"${{{name}}}{path if not path or path.startswith('/') else '/' + path}"


def _place(scheme: dict[str, JSON]) -> tuple[str, str]:
    """What a scheme sets: a request has only one `Authorization`."""
    if scheme["type"] == "apiKey":
        return str(scheme["in"]), str(scheme["name"]).lower()
    return "header", "authorization"


class Security:
    """The authentication of operations.

    Args:
        root: The description.
        references: Follows references.
        name: The name of the API, for names of variables.
        swagger: Whether it is Swagger 2.
    """

    def __init__(self, root: Node, references: References, name: str, *, swagger: bool) -> None:
        self._references = references
        self._name = name
        self._schemes = dict(
            (root["securityDefinitions"] if swagger else root["components"]["securitySchemes"]).members()
        )
        self._root = root["security"]
        self._known: dict[str, dict[str, JSON] | None] = {}
        self.told: dict[tuple[str, str, str], None] = {}

    def of(self, node: Node) -> list[dict[str, JSON]]:
        """The schemes of an operation: those of its first requirement that can be met."""
        requirements = node if isinstance(node.value, list) else self._root
        if not isinstance(requirements.value, list) or not requirements.value:
            return []
        clash: tuple[Node, list[dict[str, JSON]]] | None = None
        for each in requirements.items():
            if not isinstance(each.value, dict):
                continue
            schemes = [self._scheme(name, scopes, each) for name, scopes in each.value.items()]
            usable = [scheme for scheme in schemes if scheme is not None]
            if len(usable) < len(schemes):
                continue
            by_place: dict[tuple[str, str], dict[str, JSON]] = {}
            for scheme in usable:
                by_place.setdefault(_place(scheme), scheme)
            if len(by_place) == len(usable):
                return usable
            clash = clash or (each, [*by_place.values()])
        if clash is not None:
            node, first = clash
            self.told["repaired", node.place, "several schemes set the same header; the first is used"] = None
            return first
        self.told[
            "lost", requirements.place, "no security requirement can be met; requests are sent without"
        ] = None
        return []

    def _scheme(self, name: str, scopes: Any, node: Node) -> dict[str, JSON] | None:
        if name not in self._schemes:
            self.told["lost", node.place, f"there is no security scheme `{shown(name)}`"] = None
            return None
        try:
            scheme = self._references.resolve(self._schemes[name])
        except Refused as refused:
            self.told["lost", refused.pointer, refused.message] = None
            return None
        made = self._written(name, scheme)
        if made is None:
            kind = scheme.text("type") or "without a type"
            self.told[
                "lost", scheme.place, f"security scheme `{shown(name)}` ({shown(kind)}) has no counterpart"
            ] = None
        elif made.get("flow") == "client_credentials" and isinstance(scopes, list) and scopes:
            made = {**made, "scopes": [str(scope) for scope in scopes]}
        return made

    def _written(self, name: str, scheme: Node) -> dict[str, JSON] | None:
        kind = scheme.text("type").lower()
        if kind == "apikey":
            where, key = scheme.text("in").lower(), scheme.text("name")
            if where not in {"header", "query", "cookie"} or not key:
                return None
            if where == "header" and fault_of_name(key) is not None:
                return None
            if where == "cookie" and not is_token(key):
                return None
            return {"type": "apiKey", "in": where, "name": key, "value": self._secret(name)}
        if kind == "basic" or (kind == "http" and scheme.text("scheme").lower() == "basic"):
            return {
                "type": "http",
                "scheme": "basic",
                "username": self._secret(name, "username"),
                "password": self._secret(name, "password"),
            }
        if kind == "http":
            return self._http(name, scheme.text("scheme").lower())
        if kind == "oauth2":
            return self._oauth(name, scheme)
        if kind == "openidconnect":
            message = f"`{shown(name)}` needs a person who signs in; the tool sends the token `{self._secret(name, 'token')}`"
            self.told["lost", scheme.place, message] = None
            return self._bearer(name)
        return None

    def _http(self, name: str, word: str) -> dict[str, JSON] | None:
        if word in {"bearer", "oauth", "jwt", ""}:
            return self._bearer(name)
        if word in {"mutual", "digest", "hoba", "scram-sha-1", "scram-sha-256"}:
            return None
        # The header has a form that only the user knows.
        return {"type": "apiKey", "in": "header", "name": "Authorization", "value": self._secret(name)}

    def _secret(self, *words: str) -> str:
        return f"${{{variable_name(self._name, *words)}}}"

    def _bearer(self, name: str) -> dict[str, JSON]:
        return {"type": "http", "scheme": "bearer", "token": self._secret(name, "token")}

    def _oauth(self, name: str, scheme: Node) -> dict[str, JSON]:
        flow = scheme["flows"]["clientCredentials"]
        if scheme.text("flow") == "application":
            flow = scheme
        token_url = flow.text("tokenUrl")
        if _SCHEME.match(token_url) and "{" not in token_url:
            return {
                "type": "oauth2",
                "flow": "client_credentials",
                "token_url": token_url,
                "client_id": self._secret(name, "client_id"),
                "client_secret": self._secret(name, "client_secret"),
            }
        message = f"`{shown(name)}` needs a person who signs in; the tool sends the token `{self._secret(name, 'token')}`"
        self.told["lost", scheme.place, message] = None
        return self._bearer(name)
