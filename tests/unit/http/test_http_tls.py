"""TLS: whose certificates are believed, and what is said of others."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl

import pytest
import trustme

from http_exchanges import resolving, sending
from http_servers import answering, answering_raw, raw_answer, serving
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure

RESOLVE = resolving(api_test="127.0.0.1", other_test="127.0.0.1")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority, tmp_path, monkeypatch):
    """The environment names the authority's certificate."""
    file = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    return file


@pytest.fixture
def untrusted(monkeypatch):
    """The environment names no certificates."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)


def certified(authority: trustme.CA, *names: str, **more) -> ssl.SSLContext:
    """What a server speaks TLS with, under a certificate for some names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **more).configure_cert(context)
    return context


@pytest.mark.usefixtures("trusted")
async def test_certificates_of_the_named_file_are_believed_and_the_name_is_sent(authority):
    asked = []
    context = certified(authority, "api.test")
    context.sni_callback = lambda _connection, name, _context: asked.append(name)
    async with (
        serving(answering(200, (), b"ok"), tls=context) as server,
        sending(server, host="api.test", resolve=RESOLVE) as send,
    ):
        for _ in range(3):
            assert (await send()).body == b"ok"
        assert (server.accepted, asked) == (1, ["api.test"])
        assert server.requests[0].header("host") == f"api.test:{server.port}"


@pytest.mark.usefixtures("trusted")
async def test_an_address_may_have_a_certificate(authority):
    async with (
        serving(answering(200), tls=certified(authority, "127.0.0.1")) as server,
        sending(server) as send,
    ):
        assert (await send()).status == 200


async def test_certificates_of_a_named_folder_are_believed(authority, tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    async with (
        serving(answering(200), tls=certified(authority, "127.0.0.1")) as server,
        sending(server) as send,
    ):
        with pytest.raises(HTTPError) as caught:
            await send()
        assert caught.value.fault is HTTPFailure.TLS_FAILED


@pytest.mark.parametrize(
    ("trust", "names", "more", "said"),
    [
        ("untrusted", ["api.test"], {}, "was issued by an unknown authority"),
        ("trusted", ["other.test"], {}, "was issued for other names"),
        ("trusted", ["*.api.test"], {}, "was issued for other names"),
        (
            "trusted",
            ["api.test"],
            {"not_after": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)},
            "has expired",
        ),
    ],
)
async def test_a_certificate_that_does_not_do(authority, trust, names, more, said, request):
    request.getfixturevalue(trust)
    async with (
        serving(answering(200), tls=certified(authority, *names, **more)) as server,
        sending(server, host="api.test", resolve=RESOLVE) as send,
    ):
        with pytest.raises(HTTPError) as caught:
            await send()
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.TLS_FAILED, False)
        assert caught.value.message == f"the certificate of `api.test` {said}"
        assert server.requests == []


@pytest.mark.usefixtures("trusted")
async def test_the_certificate_of_an_address_is_for_that_address(authority):
    async with (
        serving(answering(200), tls=certified(authority, "api.test")) as server,
        sending(server) as send,
    ):
        with pytest.raises(
            HTTPError, match=r"the certificate of `127\.0\.0\.1` was issued for other addresses"
        ):
            await send()


@pytest.mark.usefixtures("trusted")
async def test_a_server_that_speaks_no_tls():
    async with serving(answering_raw(raw_answer()), greeting=b"220 hello\r\n") as server:
        server.scheme = "https"
        async with sending(server) as send:
            with pytest.raises(HTTPError, match=r"the TLS handshake with `127\.0\.0\.1` failed") as caught:
                await send()
            assert caught.value.fault is HTTPFailure.TLS_FAILED


@pytest.mark.usefixtures("trusted")
async def test_a_server_that_hangs_up_instead_of_speaking_tls():
    async def hang_up(_reader, writer, _head):
        writer.transport.abort()

    async with serving(hang_up, reads=False) as server:
        server.scheme = "https"
        async with sending(server) as send:
            with pytest.raises(HTTPError) as caught:
                await send()
            assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECT_FAILED, False)


@pytest.mark.usefixtures("trusted")
async def test_a_handshake_counts_as_connecting():
    async def silent(reader, _writer, _head):
        await reader.read()

    async with serving(silent, reads=False) as server:
        server.scheme = "https"
        async with sending(server) as send:
            with pytest.raises(HTTPError) as caught:
                await send(bounds=ExchangeBounds(connect=0.1))
            assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECT_TIMEOUT, False)
            await server.stop()


@pytest.mark.usefixtures("trusted")
async def test_a_handshake_that_is_cancelled_leaves_nothing():
    began = asyncio.Event()

    async def silent(reader, _writer, _head):
        await reader.readexactly(1)
        began.set()
        await reader.read()

    async with serving(silent, reads=False) as server:
        server.scheme = "https"
        async with sending(server) as send:
            task = asyncio.create_task(send())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.mark.usefixtures("trusted")
async def test_a_cancelled_exchange_over_tls_leaves_nothing(authority):
    asked = asyncio.Event()

    async def silent(reader, _writer, _head):
        asked.set()
        await reader.read()

    async with (
        serving(silent, tls=certified(authority, "127.0.0.1")) as server,
        sending(server) as send,
    ):
        task = asyncio.create_task(send())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_closed()


@pytest.mark.parametrize("content", [None, "no certificates"])
async def test_a_named_file_that_can_not_be_read(authority, content, tmp_path, monkeypatch):
    file = tmp_path / "roots.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with (
        serving(answering(200), tls=certified(authority, "127.0.0.1")) as server,
        sending(server) as send,
    ):
        with pytest.raises(HTTPError) as caught:
            await send()
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.TLS_FAILED, False)
        assert caught.value.message == f"cannot read the certificates in SSL_CERT_FILE ({file})"
