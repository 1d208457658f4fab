"""Tools of curl commands, as documentation and "copy as cURL" of browsers contain them.

Nothing is executed: a variable of the shell becomes `${NAME}` of the descriptor or an argument, and a command substitution is
refused.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, unquote_plus

from toolcrib.core.text import decode_json
from toolcrib.formats.http_samples import (
    HttpBody,
    HttpField,
    HttpSample,
    Unconvertible,
    json_with_variables,
    split_url,
    variable,
)
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.request_names import name_of_request, unique_names
from toolcrib.formats.sampled_tools import SampledTool, imported_of, tool_of_samples
from toolcrib.formats.shell_words import SUBSTITUTION, ShellCommand, UnclosedQuote, commands_of

# -- Options --------------------------------------------------------------------------------------------------------

_WITH_VALUE: Final = frozenset(
    """
    abstract-unix-socket alt-svc aws-sigv4 cacert capath cert cert-type ciphers config connect-timeout
    connect-to continue-at cookie cookie-jar create-file-mode crlfile curves data data-ascii data-binary
    data-raw data-urlencode delegation dns-interface dns-ipv4-addr dns-ipv6-addr dns-servers doh-url dump-header
    ech egd-file engine etag-compare etag-save expect100-timeout form form-string ftp-account
    ftp-alternative-to-user ftp-method ftp-port ftp-ssl-ccc-mode happy-eyeballs-timeout-ms haproxy-clientip
    header hostpubmd5 hostpubsha256 hsts interface ip-tos ipfs-gateway json keepalive-cnt keepalive-time key
    key-type krb libcurl limit-rate local-port location-trusted-host login-options mail-auth mail-from mail-rcpt
    max-filesize max-redirs max-time netrc-file noproxy oauth2-bearer output output-dir parallel-max pass
    pinnedpubkey preproxy proto proto-default proto-redir proxy proxy-cacert proxy-capath proxy-cert
    proxy-cert-type proxy-ciphers proxy-crlfile proxy-header proxy-key proxy-key-type proxy-pass
    proxy-pinnedpubkey proxy-service-name proxy-tls13-ciphers proxy-tlsauthtype proxy-tlspassword proxy-tlsuser
    proxy-user proxy1.0 pubkey quote random-file range rate referer request request-target resolve retry
    retry-delay retry-max-time sasl-authzid service-name socks4 socks4a socks5 socks5-gssapi-service
    socks5-hostname speed-limit speed-time stderr telnet-option tftp-blksize time-cond tls-max tls13-ciphers
    tlsauthtype tlspassword tlsuser trace trace-ascii trace-config unix-socket upload-file url url-query user
    user-agent variable vlan-priority write-out
    """.split()  # noqa: SIM905 -- as a list, it would fill pages
)
"""Options of curl 8 that take a value."""

_FLAGS: Final = frozenset(
    """
    anyauth append basic ca-native cert-status compressed compressed-ssh create-dirs crlf digest disable
    disable-eprt disable-epsv disallow-username-in-url doh-cert-status doh-insecure fail fail-early
    fail-with-body false-start form-escape ftp-create-dirs ftp-pasv ftp-pret ftp-skip-pasv-ip ftp-ssl-ccc
    ftp-ssl-control get globoff haproxy-protocol head http0.9 http1.0 http1.1 http2 http2-prior-knowledge http3
    http3-only ignore-content-length include insecure ipv4 ipv6 junk-session-cookies list-only location
    location-trusted mail-rcpt-allowfails manual metalink mptcp negotiate netrc netrc-optional next no-alpn
    no-buffer no-clobber no-keepalive no-npn no-progress-meter no-sessionid ntlm parallel parallel-immediate
    path-as-is post301 post302 post303 progress-bar proxy-anyauth proxy-basic proxy-ca-native proxy-digest
    proxy-http2 proxy-insecure proxy-negotiate proxy-ntlm proxy-ssl-allow-beast proxy-ssl-auto-client-cert
    proxy-tlsv1 proxytunnel raw remote-header-name remote-name remote-name-all remote-time remove-on-error
    retry-all-errors retry-connrefused sasl-ir show-error show-headers silent skip-existing socks5-basic
    socks5-gssapi socks5-gssapi-nec ssl ssl-allow-beast ssl-auto-client-cert ssl-no-revoke ssl-reqd
    ssl-revoke-best-effort sslv2 sslv3 styled-output suppress-connect-headers tcp-fastopen tcp-nodelay
    tftp-no-options tls-earlydata tlsv1 tlsv1.0 tlsv1.1 tlsv1.2 tlsv1.3 tr-encoding trace-ids trace-time
    use-ascii verbose version xattr
    """.split()  # noqa: SIM905 -- as a list, it would fill pages
)
"""Options of curl 8 without a value."""

_SHORT: Final = MappingProxyType(
    {
        each[0]: each[2:]
        for each in """
    0=http1.0 1=tlsv1 2=sslv2 3=sslv3 4=ipv4 6=ipv6 a=append A=user-agent b=cookie B=use-ascii c=cookie-jar
    C=continue-at d=data D=dump-header e=referer E=cert f=fail F=form g=globoff G=get h=help H=header i=include
    I=head j=junk-session-cookies J=remote-header-name k=insecure K=config l=list-only L=location m=max-time
    M=manual n=netrc N=no-buffer o=output O=remote-name p=proxytunnel P=ftp-port q=disable Q=quote r=range
    R=remote-time s=silent S=show-error t=telnet-option T=upload-file u=user U=proxy-user v=verbose V=version
    w=write-out x=proxy X=request y=speed-time Y=speed-limit z=time-cond Z=parallel :=next #=progress-bar
    """.split()  # noqa: SIM905 -- as above
    }
)
"""Letter -> option."""

_WITHOUT_EFFECT: Final = frozenset(
    """
    basic compressed disable fail fail-early fail-with-body globoff http1.1 http2 http2-prior-knowledge http3
    http3-only include show-headers ipv4 ipv6 no-buffer no-keepalive no-progress-meter no-sessionid output
    output-dir create-dirs parallel parallel-immediate parallel-max progress-bar raw remote-header-name
    remote-name remote-name-all remote-time show-error silent stderr styled-output tcp-nodelay tlsv1 tlsv1.0
    tlsv1.1 tlsv1.2 tlsv1.3 trace trace-ascii trace-time verbose write-out dump-header keepalive-time path-as-is
    post301 post302 post303
    """.split()  # noqa: SIM905 -- as a list, it would fill pages
)
"""Options that change what curl prints, or what `live` does anyway."""

_LOST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "insecure": "certificates of servers are always checked",
        "cookie-jar": "cookies of responses are not kept between calls",
        "digest": "the digest of a password changes with each request; use `auth: {type: python, ...}`",
        "ntlm": "NTLM is not supported; use `auth: {type: python, ...}`",
        "negotiate": "Negotiate is not supported; use `auth: {type: python, ...}`",
        "anyauth": "the scheme of authentication is not negotiated; `basic` is used",
        "aws-sigv4": "a signature changes with each request; use `auth: {type: python, ...}`",
        "proxy": "requests are not sent through a proxy",
        "cert": "client certificates are not supported",
        "key": "client certificates are not supported",
        "cacert": "the certificates of the system are used",
        "config": "its file is not read",
        "netrc": "its file is not read; use `auth: {type: http, scheme: basic, ...}`",
        "resolve": "use `origins` of the project",
        "connect-to": "use `origins` of the project",
    }
)
_DATA: Final = frozenset({"data", "data-ascii", "data-binary", "data-raw", "data-urlencode", "json"})
_MOST_REDIRECTS: Final = 5


class _Option(NamedTuple):
    name: str
    value: str


def tools_of_curl(text: str) -> ImportedTools:
    """The tools of the curl commands in a text; other commands are reported.

    Args:
        text: The commands, in the syntax of a POSIX shell or of cmd.exe.
    """
    tools: list[SampledTool] = []
    refused: list[ImportRefusal] = []
    remarks: list[ImportRemark] = []
    keys: dict[str, int] = {}
    drafts: list[tuple[str, str, HttpSample, _Request]] = []
    for command in _until_unclosed(text, refused):
        where = f"line {command.line}"
        if not _is_curl(command.words[0]):
            remarks.append(ImportRemark("lost", "", "", f"{where}: `{_shown(command.words[0])}` is not curl"))
            continue
        for request in _requests(command.words[1:]):
            try:
                made = _Request(request)
                samples = [*made.samples()]
            except Unconvertible as why:
                refused.append(ImportRefusal(where, why.reason, "", f"{where}: {why}"))
                continue
            if command.rest:
                made.lost.append(f"what follows the command: `{_shown(command.rest)}`")
            for sample in samples:
                key = f"{sample.method} {_address(sample.url)}"
                keys[key] = keys.get(key, 0) + 1
                key = key if keys[key] == 1 else f"{key} ({keys[key]})"
                drafts.append((_plain(key), where, sample, made))
    names = unique_names(_name(sample) for _, _, sample, _ in drafts)
    for (key, where, sample, made), name in zip(drafts, names, strict=True):
        drafted = tool_of_samples([sample], key=key, name=name, texts={})
        if isinstance(drafted, ImportRefusal):
            refused.append(drafted._replace(message=f"{where}: {drafted.message}"))
            continue
        descriptor = _with_extra(drafted.tool.descriptor, made.extra)
        told = (
            *(ImportRemark("lost", key, "", message) for message in made.lost),
            *(ImportRemark("repaired", key, "", message) for message in made.repaired),
        )
        tools.append(drafted._replace(tool=ImportedTool(key, descriptor), remarks=(*drafted.remarks, *told)))
    return imported_of(tools, refused, remarks)


def _until_unclosed(text: str, refused: list[ImportRefusal]) -> Iterator[ShellCommand]:
    try:
        yield from commands_of(text)
    except UnclosedQuote as why:
        refused.append(ImportRefusal("", "unclosed_quote", "", str(why)))


def _address(url: str) -> str:
    """A URL without credentials, query and fragment."""
    try:
        parts = split_url(url)
    except Unconvertible:
        return "URL"  # the draft refuses it, with the reason
    return parts.origin + parts.path


def _name(sample: HttpSample) -> str:
    try:
        return name_of_request(sample.method, sample.url)
    except Unconvertible:
        return "tool"  # the draft refuses it, with the reason


def _with_extra(descriptor: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """A descriptor with the members that options add; those of `live` are added to it."""
    live = {**descriptor["live"], **extra.get("live", {})}
    others = {key: value for key, value in extra.items() if key != "live"}
    rest = {key: value for key, value in descriptor.items() if key != "live"}
    return {**rest, **others, "live": live}


def _is_curl(word: str) -> bool:
    return re.fullmatch(r"(.*[/\\])?curl(\.exe)?", word) is not None


def _plain(text: str) -> str:
    return re.sub("\ue000([^\ue001]*)\ue001", r"$\1", text)


def _shown(text: str) -> str:
    # What follows may contain secrets; its first word shows what it is.
    return _plain(text).split()[0][:40] if text.split() else ""


# -- The request of a command ---------------------------------------------------------------------------------------


def _requests(words: Sequence[str]) -> Iterator[list[_Option]]:
    """The options of each request of a command; `--next` begins another one."""
    options: list[_Option] = []
    for option in _options(words):
        if option.name == "next":
            yield options
            options = []
        else:
            options.append(option)
    yield options


def _options(words: Sequence[str]) -> Iterator[_Option]:
    waiting = [*reversed(words)]
    only_urls = False
    while waiting:
        word = waiting.pop()
        if only_urls or not word.startswith("-") or word == "-":
            yield _Option("url", word)
        elif word == "--":
            only_urls = True
        elif word.startswith("--"):
            name = _long_name(word[2:])
            takes = name in _WITH_VALUE
            yield _Option(name, waiting.pop() if takes and waiting else "")
        else:
            yield from _short_options(word[1:], waiting)


def _long_name(name: str) -> str:
    """The full name of a long option, which may be abbreviated."""
    known = _WITH_VALUE | _FLAGS
    plain = name.removeprefix("no-") if name not in known and name.removeprefix("no-") in _FLAGS else name
    if plain in known:
        return name
    matches = [each for each in known if each.startswith(name)]
    return matches[0] if len(matches) == 1 else name


def _short_options(letters: str, waiting: list[str]) -> Iterator[_Option]:
    place = 0
    while place < len(letters):
        name = _SHORT.get(letters[place], letters[place])
        place += 1
        if name in _WITH_VALUE:
            rest = letters[place:]
            yield _Option(name, rest or (waiting.pop() if waiting else ""))
            return
        yield _Option(name, "")


class _Request:
    """The request of some options.

    Attributes:
        lost: What has no counterpart.
        repaired: What was assumed.
        extra: Members of the descriptor that options add.
    """

    def __init__(self, options: Sequence[_Option]) -> None:
        self._options = options
        self.lost: list[str] = []
        self.repaired: list[str] = []
        self.extra: dict[str, Any] = {}
        self._urls: list[str] = []
        self._methods: list[str] = []
        self._headers: list[tuple[str, str]] = []
        self._cookies: list[tuple[str, str]] = []
        self._data: list[_Option] = []
        self._form: list[HttpField] = []
        self._query: list[tuple[str, str]] = []
        self._flags: set[str] = set()
        self._uploads: list[str] = []
        self._auth: list[dict[str, Any]] = []
        self._redirects = _MOST_REDIRECTS
        for option in options:
            self._take(option)

    def samples(self) -> Iterator[HttpSample]:
        """A sample for each URL.

        Raises:
            Unconvertible: There is no URL, or a part comes from a command substitution.
        """
        if any(SUBSTITUTION in option.value for option in self._options):
            message = "a part of the command is the output of another command"
            raise Unconvertible("command_substitution", message)
        if not self._urls:
            raise Unconvertible("no_url", "the command has no URL")
        if "location" in self._flags or "location-trusted" in self._flags:
            self.extra.setdefault("live", {})["redirects"] = self._redirects
        body = self._body()
        for url in self._urls:
            address = url
            if "://" not in url and not url.startswith("\ue000"):
                # curl guesses http as well.
                address = f"http://{url}"
                self.repaired.append(
                    f"`{_plain(url).partition('?')[0]}` has no scheme; `http` is assumed, as curl does"
                )
            query = [*self._query, *self._queried()] if self._is_get() else self._query
            yield HttpSample(
                pointer="",
                method=(self._methods or [""])[-1].upper() or self._usual_method(body),
                url=address,
                headers=[*self._headers, *self._typed()],
                query=query,
                cookies=self._cookies,
                body=None if self._is_get() else body,
                auth=self._auth,
            )

    def _usual_method(self, body: HttpBody | None) -> str:
        if "head" in self._flags:
            return "HEAD"
        if self._is_get():
            return "GET"
        if self._uploads:
            return "PUT"
        return "GET" if body is None else "POST"

    def _is_get(self) -> bool:
        return "get" in self._flags

    def _typed(self) -> Iterator[tuple[str, str]]:
        """The headers that `--json` adds."""
        if any(option.name == "json" for option in self._data):
            if not self._has("content-type"):
                yield "Content-Type", "application/json"
            if not self._has("accept"):
                yield "Accept", "application/json"

    def _has(self, name: str) -> bool:
        return any(each.lower() == name for each, _ in self._headers)

    def _take(self, option: _Option) -> None:
        name, value = option
        take = self._takers().get(name)
        if take is not None:
            take(value)
        elif name in _DATA:
            self._data.append(option)
        elif name in {"get", "head", "location", "location-trusted"}:
            self._flags.add(name)
        elif name in _LOST:
            self.lost.append(f"`--{name}`: {_LOST[name]}")
        elif name not in _WITHOUT_EFFECT:
            known = name in _WITH_VALUE or name in _FLAGS or name.removeprefix("no-") in _FLAGS
            dashes = "-" if len(name) == 1 else "--"
            why = "has no counterpart" if known else "is not an option of curl 8"
            self.lost.append(f"`{dashes}{name}` {why}")

    def _takers(self) -> Mapping[str, Callable[[str], None]]:
        """Option -> what its value does to the request."""
        limits = ("max-time", "connect-timeout", "retry", "max-redirs")
        headers = {
            "oauth2-bearer": "Authorization",
            "user-agent": "User-Agent",
            "referer": "Referer",
            "range": "Range",
        }
        leads = {"oauth2-bearer": "Bearer ", "range": "bytes="}
        return {
            "url": self._urls.append,
            "request": self._methods.append,
            "header": self._header,
            "url-query": self._url_query,
            "upload-file": self._uploads.append,
            "user": self._user,
            "cookie": self._cookie,
            "form": self._form_field,
            "form-string": self._form_string,
            **{
                option: partial(self._add_header, name, leads.get(option, ""))
                for option, name in headers.items()
            },
            **{option: partial(self._limit, option) for option in limits},
        }

    def _header(self, line: str) -> None:
        if line.startswith("@"):
            self.lost.append("headers of a file, which is not read (`-H @...`)")
            return
        name, colon, value = line.partition(":")
        if not colon:
            # `-H "X-Empty;"` sends the header without a value.
            if line.endswith(";"):
                self._headers.append((line[:-1].strip(), ""))
            return
        if name.strip().lower() == "cookie":
            self._cookie(value.strip())
        elif value.strip():
            self._headers.append((name.strip(), value.strip()))

    def _add_header(self, name: str, lead: str, value: str) -> None:
        # `;auto` asks curl to name the page before, after a redirect.
        text = value.removesuffix(";auto")
        if text:
            self._headers.append((name, lead + text))

    def _user(self, value: str) -> None:
        user, _, password = value.partition(":")
        if variable("")[0] in value:
            self._auth.append({"type": "http", "scheme": "basic", "username": user, "password": password})
        else:
            credentials = b64encode(value.encode() if ":" in value else f"{value}:".encode()).decode()
            self._headers.append(("Authorization", f"Basic {credentials}"))

    def _cookie(self, value: str) -> None:
        if "=" not in value:
            self.lost.append("cookies of a file, which is not read (`-b FILE`)")
            return
        for part in value.split(";"):
            name, _, text = part.strip().partition("=")
            if name:
                self._cookies.append((name, text))

    def _url_query(self, value: str) -> None:
        name, _, text = value.removeprefix("+").partition("=")
        self._query.append((name, text))

    def _limit(self, name: str, value: str) -> None:
        if not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", value):
            self.lost.append(f"`--{name}`, whose value is not a number")
        elif name == "max-time":
            self.extra["timeout"] = _duration(value)
        elif name == "connect-timeout":
            self.extra.setdefault("live", {})["timeouts"] = {"connect": _duration(value)}
        elif name == "retry":
            # Whether a call may be repeated depends on its effects, which a command does not tell.
            self.lost.append(
                "`--retry`: set `limits.attempts`, and `annotations.idempotent` if it may be repeated"
            )
        else:
            self._redirects = min(int(float(value)), _MOST_REDIRECTS)

    def _form_string(self, text: str) -> None:
        name, _, value = text.partition("=")
        self._form.append(HttpField(name, value))

    def _form_field(self, text: str) -> None:
        name, _, value = text.partition("=")
        if value[:1] not in {"@", "<"}:
            value, kind = _without_type(value)
            self._form.append(HttpField(name, value, content_type=kind))
            return
        pieces = value[1:].split(";")
        more = dict(piece.strip().partition("=")[::2] for piece in pieces[1:])
        file = more.get("filename", pieces[0]).strip('"')
        if value[0] == "<":
            self._form.append(HttpField(name, None))
        else:
            self._form.append(HttpField(name, None, True, file.replace("\\", "/"), more.get("type", "")))

    def _body(self) -> HttpBody | None:
        kind = next((value for name, value in reversed(self._headers) if name.lower() == "content-type"), "")
        if self._form:
            if self._data:
                self.lost.append("`-d` beside `-F`, which curl refuses")
            return HttpBody(
                kind if kind.startswith("multipart/") else "multipart/form-data", fields=self._form
            )
        if self._uploads:
            self.lost.append("the file of `-T`, which is not read; it is the argument `body`")
            return HttpBody(kind or "application/octet-stream")
        if not self._data:
            return None
        if any(option.name == "json" for option in self._data):
            kind = kind or "application/json"
        text = self._text()
        if text is None:
            self.lost.append("the file of `-d @...`, which is not read; it is the argument `body`")
            return HttpBody(kind or "application/octet-stream")
        if not kind and _is_json(text):
            self.repaired.append(
                "no `Content-Type` was given for JSON, and curl sends it as a form; it is sent as `application/json`"
            )
            return HttpBody("application/json", json_with_variables(text))
        kind = kind or "application/x-www-form-urlencoded"
        return HttpBody(kind, json_with_variables(text) if "json" in kind else text)

    def _text(self) -> str | None:
        """The data; None if they are in a file."""
        pieces = []
        for name, value in self._data:
            if name == "data-urlencode":
                pieces.append(_urlencoded(value))
            elif value.startswith("@") and name != "data-raw":
                return None
            elif name in {"data", "data-ascii"}:
                pieces.append(value)
            else:
                pieces.append(value)
        # `--json` appends its values to each other, `--data` with `&`.
        together = "" if all(name == "json" for name, _ in self._data) else "&"
        return together.join(pieces)

    def _queried(self) -> Iterator[tuple[str, str]]:
        """The parameters of `-G`."""
        for part in (self._text() or "").split("&"):
            name, _, value = part.partition("=")
            if name:
                yield unquote_plus(name), unquote_plus(value)


def _duration(value: str) -> str:
    seconds = float(value)
    return f"{int(seconds)}s" if seconds.is_integer() else f"{round(seconds * 1000)}ms"


def _without_type(value: str) -> tuple[str, str]:
    """The value and the media type of `value;type=...`."""
    text, found, kind = value.rpartition(";type=")
    return (text, kind) if found else (value, "")


def _urlencoded(value: str) -> str:
    """A value of `--data-urlencode`, encoded; `@` and `name@` read a file."""
    name, equals, text = value.partition("=")
    if not equals:
        return quote_plus(value)
    return f"{name}={quote_plus(text)}" if name else quote_plus(text)


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        decode_json(json_with_variables(text))
    except (ValueError, RecursionError):
        return False
    return True
