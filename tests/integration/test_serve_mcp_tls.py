"""`--tls-cert` and `--tls-key`: https with real certificates, and files that can't serve it."""

from __future__ import annotations

import datetime as dt
import os
import socket
import ssl
from pathlib import Path

import httpx2
import pytest
import trustme
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from mcp.client.streamable_http import streamable_http_client

from serving_mcp import (
    BASICS,
    ERAS,
    PATIENCE,
    as_http,
    client,
    json_of,
    quiet_sdk,
    said_raw,
    serve,
    status_of,
    texts,
    write,
)
from toolcrib.cli.group import cli
from toolcrib.serve.http_common.listen_address import CertificateFiles
from toolcrib.serve.http_common.tls import tls_context

pytestmark = [quiet_sdk]

ALIVE = as_http("GET", "/healthz", {"host": "localhost"})


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority) -> ssl.SSLContext:
    """What a client speaks TLS with that trusts the authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def files(authority, tmp_path) -> CertificateFiles:
    return issued(authority, tmp_path, "localhost", "127.0.0.1")


def issued(authority: trustme.CA, folder: Path, *names: str, **more) -> CertificateFiles:
    """A certificate with its chain, and its key, which only its owner can read."""
    issue = authority.issue_cert(*names, **more)
    files = CertificateFiles(folder / "cert.pem", folder / "key.pem")
    files.certificate.write_bytes(b"".join(blob.bytes() for blob in issue.cert_chain_pems))
    issue.private_key_pem.write_to_path(str(files.key))
    files.key.chmod(0o600)
    return files


def words_of(files: CertificateFiles) -> tuple[str, ...]:
    return "--tls-cert", str(files.certificate), "--tls-key", str(files.key)


async def test_clients_are_served_over_https(files, trusting, tmp_path):
    async with serve(write(tmp_path / "tools", BASICS), *words_of(files)) as served:
        assert served.url == f"https://127.0.0.1:{served.port}/mcp"
        raw = await said_raw(served.port, ALIVE, ssl=trusting, server_hostname="localhost")
        assert (status_of(raw), json_of(raw)) == (200, {"status": "ok", "tools": 3})
        for era in ERAS:
            async with (
                httpx2.AsyncClient(verify=trusting) as http,
                client(streamable_http_client(served.url, http_client=http), era) as one,
            ):
                assert texts(await one.call_tool("echo", {"text": era})) == [era]
        assert await served.end() == 0
    assert len(served.said) == 1


async def test_a_page_that_the_server_itself_would_serve_is_of_https(files, trusting, tmp_path):
    async with serve(write(tmp_path / "tools", BASICS), *words_of(files)) as served:
        for scheme, status in (("https", 200), ("http", 403)):
            own = {"host": "localhost", "origin": f"{scheme}://localhost:{served.port}"}
            raw = await said_raw(
                served.port, as_http("GET", "/healthz", own), ssl=trusting, server_hostname="localhost"
            )
            assert status_of(raw) == status


async def test_clients_that_do_not_agree_on_tls_are_a_line_at_most(files, trusting, tmp_path):
    async with serve(write(tmp_path / "tools", BASICS), *words_of(files)) as served:
        assert await said_raw(served.port, ALIVE) == b""
        said = await served.until_said("TLS")
        assert "the client used http://, but the server uses https://" in said
        for _ in range(5):
            await said_raw(served.port, ALIVE)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await said_raw(served.port, ALIVE, ssl=old, server_hostname="localhost")
        with pytest.raises(ssl.SSLCertVerificationError):
            await said_raw(served.port, ALIVE, ssl=ssl.create_default_context(), server_hostname="localhost")
        for _ in range(3):
            socket.create_connection(("127.0.0.1", served.port), PATIENCE).close()
        raw = await said_raw(served.port, ALIVE, ssl=trusting, server_hostname="localhost")
        assert status_of(raw) == 200
        assert await served.end() == 0
    assert "Traceback" not in "".join(served.said)


def test_versions_before_tls_1_2_are_not_spoken(files):
    assert tls_context(files).minimum_version is ssl.TLSVersion.TLSv1_2


async def test_a_key_that_everybody_can_read_is_served_with_a_warning(files, tmp_path):
    files.key.chmod(0o644)
    async with serve(write(tmp_path / "tools", BASICS), *words_of(files)) as served:
        warning = await served.until_said("warning")
        assert str(files.key) in warning
        assert "chmod 600" in warning


def expired(files, authority):
    day = dt.timedelta(days=1)
    now = dt.datetime.now(dt.UTC)
    issued(authority, files.key.parent, "localhost", not_before=now - 2 * day, not_after=now - day)
    return [f"the certificate `{files.certificate}` expired on {now - day:%Y-%m-%d}"]


def early(files, authority):
    day = dt.timedelta(days=1)
    now = dt.datetime.now(dt.UTC)
    issued(authority, files.key.parent, "localhost", not_before=now + day, not_after=now + 2 * day)
    return [f"the certificate `{files.certificate}` is not valid before {now + day:%Y-%m-%d}"]


def of_another(files, authority):
    authority.issue_cert("localhost").private_key_pem.write_to_path(str(files.key))
    return [f"the key `{files.key}` does not match the certificate `{files.certificate}`"]


def encrypted(files, authority):
    key = load_pem_private_key(files.key.read_bytes(), None)
    how = BestAvailableEncryption(b"a passphrase")
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    return [f"the key `{files.key}` is encrypted"]


def not_pem(files, authority):
    files.certificate.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
    files.key.write_bytes(b"\x00\x01")
    return [
        f"`{files.certificate}` is not a PEM certificate",
        f"`{files.key}` is not a PEM private key",
    ]


def empty(files, authority):
    files.certificate.write_text("")
    return [f"`{files.certificate}` is not a PEM certificate"]


def exchanged(files, authority):
    before = files.key.read_bytes()
    files.key.write_bytes(files.certificate.read_bytes())
    files.certificate.write_bytes(before)
    return [
        f"`{files.certificate}` is not a PEM certificate",
        f"`{files.key}` is not a PEM private key",
    ]


def gone(files, authority):
    files.certificate.unlink()
    files.key.unlink()
    why = os.strerror(2)
    return [
        f"cannot read the certificate `{files.certificate}`: {why}",
        f"cannot read the key `{files.key}`: {why}",
    ]


@pytest.mark.parametrize(
    "spoil",
    [expired, early, of_another, encrypted, not_pem, empty, exchanged, gone],
    ids=lambda each: each.__name__,
)
def test_files_that_can_not_serve_tls_are_named_before_anything_listens(spoil, files, authority, tmp_path):
    lines = spoil(files, authority)
    tools = write(tmp_path / "tools", BASICS)
    told = CliRunner().invoke(
        cli, ["serve", "mcp", str(tools), "--transport", "http", "--port", "0", *words_of(files)]
    )
    assert (told.exit_code, told.stdout) == (2, "")
    assert "serving" not in told.stderr
    said = told.stderr.removeprefix("Error: ").splitlines()
    assert len(said) == len(lines)
    for line, wanted in zip(said, lines, strict=True):
        assert line.startswith(wanted)


@pytest.mark.parametrize("given", ["--tls-cert", "--tls-key"])
def test_a_certificate_needs_a_key_and_a_key_a_certificate(given):
    told = CliRunner().invoke(cli, ["serve", "mcp", "--transport", "http", given, "one.pem"])
    other = {"--tls-cert": "--tls-key", "--tls-key": "--tls-cert"}[given]
    assert told.exit_code == 2
    assert f"`{given}` needs `{other}`" in told.stderr
