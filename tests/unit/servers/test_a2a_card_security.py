"""The authentication that a card requires, compared with that of the configuration."""

from __future__ import annotations

import pytest

from toolcrib.core.server_config import Server
from toolcrib.servers.a2a.card_security import missing_auth

KEY = {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}
BEARER = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
BASIC = {"httpAuthSecurityScheme": {"scheme": "basic"}}
OAUTH = {"oauth2SecurityScheme": {"flows": {}}}
MTLS = {"mtlsSecurityScheme": {}}
SCHEMES = {"key": KEY, "bearer": BEARER, "basic": BASIC, "oauth": OAUTH, "mtls": MTLS}

OF_KEY = {"type": "apiKey", "in": "header", "name": "x-api-key", "value": "${K}"}
OF_BEARER = {"type": "http", "scheme": "bearer", "token": "${T}"}
OF_BASIC = {"type": "http", "scheme": "basic", "username": "u", "password": "${P}"}
OF_OAUTH = {"type": "oauth2", "flow": "client_credentials"}


def missing(requirements, auth=None, schemes=SCHEMES, headers=None, old=False):
    if old:
        raw = {"securitySchemes": schemes, "security": [{name: [] for name in each} for each in requirements]}
    else:
        each = [{"schemes": {name: {"list": []} for name in names}} for names in requirements]
        raw = {"securitySchemes": schemes, "securityRequirements": each}
    return missing_auth(raw, Server("crm", transport="a2a", auth=auth, headers=headers or {}))


@pytest.mark.parametrize(
    ("requirements", "auth"),
    [
        ([], None),
        ([["key"]], OF_KEY),
        ([["bearer"]], OF_BEARER),
        ([["bearer"]], OF_OAUTH),
        ([["oauth"]], OF_BEARER),
        ([["basic"]], OF_BASIC),
        ([["key", "bearer"]], [OF_KEY, OF_BEARER]),
        ([["mtls"], ["key"]], OF_KEY),
        ([["mtls"], []], None),
        ([["basic"]], {"type": "hook", "function": "m:f"}),
    ],
)
def test_an_authentication_that_a_card_accepts_is_no_remark(requirements, auth):
    assert missing(requirements, auth) == ""
    assert missing(requirements, auth, old=True) == ""


@pytest.mark.parametrize(
    ("requirements", "auth", "text"),
    [
        ([["key"]], None, "`key`, as `auth: {type: apiKey, in: header, name: X-API-Key, ...}`"),
        ([["bearer"]], OF_BASIC, "`bearer`, as `auth: {type: http, scheme: bearer, ...}`"),
        ([["basic"]], OF_BEARER, "`basic`, as `auth: {type: http, scheme: basic, ...}`"),
        ([["key", "bearer"]], OF_KEY, "provide: `bearer`, as"),
        ([["key"], ["oauth"]], None, "...}`, or `oauth`, as `auth: {type: oauth2, ...}`"),
        ([["mtls"]], OF_KEY, "`mtls`, which toolcrib does not support"),
        ([["unknown"]], OF_KEY, "`unknown`, which toolcrib does not support"),
        ([["key"]], {**OF_KEY, "name": "Other"}, "name: X-API-Key"),
    ],
)
def test_what_is_missing_is_named_with_what_to_write(requirements, auth, text):
    assert text in missing(requirements, auth)


def test_a_configured_header_may_be_the_credential():
    assert missing([["key"]], headers={"X-Api-Key": "${K}"}) == ""
    assert missing([["bearer"]], headers={"Authorization": "Bearer ${T}"}) == ""


@pytest.mark.parametrize(
    "scheme",
    [{"type": "apiKey", "in": "header", "name": "X-API-Key"}, {"type": "http", "scheme": "bearer"}],
)
def test_schemes_of_0_3_are_read(scheme):
    auth = OF_KEY if scheme["type"] == "apiKey" else OF_BEARER
    assert missing([["s"]], auth, {"s": scheme}, old=True) == ""
    assert "`s`, as `auth:" in missing([["s"]], None, {"s": scheme}, old=True)


@pytest.mark.parametrize("junk", [7, [7], [{"schemes": 7}], [{"schemes": {"key": 7}}], {"a": []}])
def test_junk_is_no_error(junk):
    raw = {"securitySchemes": junk, "securityRequirements": junk}
    assert isinstance(missing_auth(raw, Server("crm", transport="a2a")), str)
