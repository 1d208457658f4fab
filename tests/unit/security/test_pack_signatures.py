"""Signatures of packs: what is signed, which keys are read, and which publisher a user trusts."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import x25519
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.loading.pack_integrity import publisher_problem
from toolcrib.security.pack_signatures import (
    SIGNATURE_FILE,
    PackSignature,
    SigningError,
    create_signing_key,
    hash_of_files,
    key_of,
    load_signing_key,
    signature_fault,
    signature_of,
    trust_key,
    trusted_key,
)
from toolcrib.security.trust_decisions import DecisionStore

FILES = {"pack.yaml": b"name: p\n", "data/a.json": b"1"}
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return create_signing_key(str(tmp_path_factory.mktemp("keys") / "signing.pem"))


@pytest.fixture
def store(tmp_path):
    return DecisionStore(str(tmp_path / "state" / "trust"))


def signed(private, **changes):
    signature = private.sign("p", "1.0.0", FILES)._replace(**changes)
    return {**FILES, SIGNATURE_FILE: signature.render()}


def test_a_signature_is_valid_for_the_files_that_were_signed(key):
    files = signed(key)
    assert signature_fault("p", "1.0.0", files) == ""
    assert signature_of(files).key == key.public
    assert signature_fault("p", "1.0.0", FILES) == ""


def test_whatever_is_changed_makes_it_invalid(key, tmp_path):
    other = create_signing_key(str(tmp_path / "other.pem"))
    files = signed(key)
    changed = "the files were changed after they were signed"
    assert signature_fault("p", "1.0.0", {**files, "data/a.json": b"2"}) == changed
    assert signature_fault("p", "1.0.0", {**files, "more": b""}) == changed
    assert (
        signature_fault(
            "p", "1.0.0", {"pack.yaml": FILES["pack.yaml"], SIGNATURE_FILE: files[SIGNATURE_FILE]}
        )
        == changed
    )
    assert signature_fault("q", "1.0.0", files) == "it signs `p` 1.0.0, not `q` 1.0.0"
    assert signature_fault("p", "1.0.1", files) == "it signs `p` 1.0.0, not `p` 1.0.1"
    assert "was not made with the key" in signature_fault("p", "1.0.0", signed(key, key=other.public))
    assert "was not made with the key" in signature_fault("p", "1.0.0", signed(key, signature=""))
    assert "was not made with the key" in signature_fault("p", "1.0.0", signed(key, key="rsa:AAAA"))
    # The name, version and hash are signed, not only written next to the signature.
    forged = signed(key)
    value = json.loads(forged[SIGNATURE_FILE]) | {"version": "2.0.0"}
    assert "was not made" in signature_fault(
        "p", "2.0.0", {**FILES, SIGNATURE_FILE: json.dumps(value).encode()}
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"format": 2}',
        b'{"format": 1}',
        b'{"format": 1, "name": 1, "version": "", "hash": "", "key": "", "signature": ""}',
        b"\xff",
    ],
)
def test_what_is_no_signature_is_invalid(data):
    assert PackSignature.parse(data) is None
    assert signature_fault("p", "1.0.0", {**FILES, SIGNATURE_FILE: data}) == "`pack.sig` is not a signature"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_a_signature_or_not(data):
    found = PackSignature.parse(data)
    assert found is None or PackSignature.parse(found.render()) == found


@given(
    st.dictionaries(st.text(min_size=1, max_size=8), st.binary(max_size=8), min_size=1, max_size=4), st.data()
)
def test_the_hash_depends_on_every_name_and_byte_and_not_on_the_order(files, data):
    assert hash_of_files(dict(reversed(files.items()))) == hash_of_files(files)
    name = data.draw(st.sampled_from(sorted(files)))
    assert hash_of_files({**files, name: files[name] + b"x"}) != hash_of_files(files)
    assert hash_of_files({**files, name + "x" * 9: b""}) != hash_of_files(files)
    assert hash_of_files({**files, SIGNATURE_FILE: b"x"}) == hash_of_files(
        {name: content for name, content in files.items() if name != SIGNATURE_FILE}
    )


def test_a_key_is_created_once_for_its_owner_alone(tmp_path):
    path = str(tmp_path / "keys" / "signing.pem")
    key = create_signing_key(path)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert load_signing_key(path).public == key.public
    assert len(base64.b64decode(key.public.removeprefix("ed25519:"))) == 32
    with pytest.raises(SigningError, match="exists already"):
        create_signing_key(path)


def test_a_key_that_cannot_be_used_is_refused(tmp_path):
    path = tmp_path / "signing.pem"
    with pytest.raises(SigningError, match="does not exist") as missing:
        load_signing_key(str(path))
    assert missing.value.code == "no_key"
    create_signing_key(str(path))
    path.chmod(0o644)
    with pytest.raises(SigningError, match="others can read it"):
        load_signing_key(str(path))
    path.write_text("no key")
    path.chmod(0o600)
    with pytest.raises(SigningError, match="is not an unencrypted private key in PEM"):
        load_signing_key(str(path))


def test_a_key_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "signing.pem"
    pem = x25519.X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(pem)
    path.chmod(0o600)
    with pytest.raises(SigningError, match="is not an Ed25519 key"):
        load_signing_key(str(path))


def test_a_changed_publisher_is_an_alarm(store):
    assert publisher_problem(store, "p", "ed25519:a") is None
    trust_key(store, "p", "ed25519:a", when=NOW)
    assert key_of(trusted_key(store, "p")) == "ed25519:a"
    assert publisher_problem(store, "p", "ed25519:a") is None
    assert publisher_problem(store, "other", "ed25519:b") is None
    alarm = publisher_problem(store, "p", "ed25519:b")
    assert alarm.code == "publisher_changed"
    assert alarm.message == (
        "the publisher of the pack `p` has changed: it is signed with ed25519:b, and you trust ed25519:a for it "
        "(since 2026-01-02T00:00:00+00:00)"
    )
    assert "it is not signed, and you trust ed25519:a" in publisher_problem(store, "p", "").message
    trust_key(store, "p", "ed25519:b", when=NOW)
    assert publisher_problem(store, "p", "ed25519:b") is None
    assert publisher_problem(store, "p", "ed25519:a").code == "publisher_changed"
