"""Who may be served, and at which addresses."""

from __future__ import annotations

import pytest

from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.http_common.listen_address import ListenAddress, is_loopback
from toolcrib.serve.http_common.request_guard import PageAccess, RequestGuard

PAGES = PageAccess(b"POST", frozenset(), b"")


@pytest.mark.parametrize(
    ("host", "only_here"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.1.4", False),
        ("::ffff:192.168.1.4", False),
        ("localhost.evil.test", False),
        ("127.0.0.1.evil.test", False),
        ("2130706433", False),
    ],
)
def test_which_hosts_only_this_machine_reaches(host, only_here):
    assert is_loopback(host) is only_here
    if only_here:
        assert ListenAddress(host).checked() == ListenAddress(host)
    else:
        with pytest.raises(ConfigurationError, match="--token-env") as refused:
            ListenAddress(host).checked()
        assert refused.value.code == "token_needed"
        assert ListenAddress(host, tokens=("t" * 16,)).checked().tokens == ("t" * 16,)
        with pytest.raises(ConfigurationError, match="expected at least 16 characters, got 15") as refused:
            ListenAddress(host, tokens=("t" * 15,)).checked()
        assert refused.value.code == "token_too_short"
        assert "t" * 15 not in str(refused.value)


@pytest.mark.parametrize("token", ["with blank", "nöt-ascii", "line\nbreak"])
def test_a_token_that_no_header_can_carry(token):
    with pytest.raises(ConfigurationError, match="header"):
        ListenAddress(tokens=(token,)).checked()


def judged(guard: RequestGuard, method: str = "POST", *, public: bool = False, **headers: str) -> int | None:
    told = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    answer = guard.check(method, told, public=public)
    return None if answer is None else answer.status


def test_an_address_of_the_network_is_no_origin_of_its_own():
    guard = RequestGuard(ListenAddress("192.168.1.4", 80, tokens=("t",)), [80], PAGES)
    proof = {"authorization": "Bearer t"}
    assert judged(guard, host="192.168.1.4", **proof) is None
    assert judged(guard, host="192.168.1.4:80", **proof) is None
    assert judged(guard, host="192.168.1.4:81", **proof) == 421
    assert judged(guard, host="192.168.1.4", origin="http://192.168.1.4:80", **proof) == 403


def test_the_token_comes_after_host_and_origin():
    guard = RequestGuard(ListenAddress(tokens=("t",)), [8000], PAGES)
    assert judged(guard, host="evil.test") == 421
    assert judged(guard, host="localhost", origin="http://evil.test") == 403
    assert judged(guard, host="localhost") == 401
    assert judged(guard, host="localhost", public=True) is None
    assert judged(guard) == 421


def test_two_of_a_header_are_one_too_many():
    guard = RequestGuard(ListenAddress(tokens=("t",)), [8000], PAGES)
    host, proof = (b"host", b"localhost"), (b"authorization", b"Bearer t")
    origin = (b"origin", b"http://localhost:8000")
    assert guard.check("POST", [host, proof, origin], public=False) is None
    for twice in (host, proof, origin):
        assert guard.check("POST", [host, proof, origin, twice], public=False) is not None
