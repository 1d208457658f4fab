"""The key of the user, and what it encrypts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.security.encryption import CannotDecrypt, Cipher, NoKey, create_key, load_cipher


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("TOOLCRIB_KEY", raising=False)
    return tmp_path / "state"


def test_what_is_encrypted_is_decrypted(state):
    path = create_key()
    assert path == str(state / "encryption.key")
    assert Path(path).stat().st_mode & 0o777 == 0o600
    cipher = load_cipher()
    value = {"password": "canary-4711", "é": [1, None]}
    text = cipher.encrypt(value)
    assert "canary" not in text
    assert load_cipher().decrypt(text) == value
    assert text != cipher.encrypt(value)
    assert cipher.digest("a") == load_cipher().digest("a") != cipher.digest("b")


def test_another_key_and_a_changed_text_decrypt_nothing(state, tmp_path):
    create_key()
    text = load_cipher().encrypt("x")
    for wrong in (text[:-4] + "AAA=", "", "§"):
        with pytest.raises(CannotDecrypt, match="cannot be decrypted"):
            load_cipher().decrypt(wrong)
    other = create_key(str(tmp_path / "other"))
    with pytest.raises(CannotDecrypt):
        load_cipher(environment={"TOOLCRIB_KEY": f"file:{other}"}).decrypt(text)


def test_a_key_is_never_replaced(state):
    create_key()
    with pytest.raises(FileExistsError):
        create_key()


def test_the_key_can_be_in_a_variable(state, tmp_path):
    environment = {"TOOLCRIB_KEY": "env:MY_KEY", "MY_KEY": Path(create_key()).read_text()}
    assert load_cipher(environment=environment).decrypt(load_cipher().encrypt(1)) == 1


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("", "does not exist"),
        ("file:/nowhere/key", "does not exist"),
        ("env:NOT_SET", "`NOT_SET` is not set"),
        ("MY_KEY", "does not name the place of a key"),
        ("wrong:place", "does not name the place of a key"),
        ("env:A:-b", "does not name the place of a key"),
        ("env:SHORT", "not 32 bytes in URL-safe base64"),
    ],
)
def test_without_a_usable_key_the_error_says_why(state, written, words):
    with pytest.raises(NoKey, match=words) as error:
        load_cipher(environment={"TOOLCRIB_KEY": written, "SHORT": "abc"})
    assert error.value.code == "no_key"
    assert error.value.hint


def test_a_key_that_others_can_read_or_that_lies_in_the_project_is_refused(state, tmp_path):
    path = create_key(str(tmp_path / "project" / "key"))
    environment = {"TOOLCRIB_KEY": f"file:{path}"}
    with pytest.raises(NoKey, match="is inside the project"):
        load_cipher(str(tmp_path / "project"), environment)
    assert load_cipher(str(tmp_path / "elsewhere"), environment)
    Path(path).chmod(0o640)
    with pytest.raises(NoKey, match="others can read the key file"):
        load_cipher(environment=environment)


WITHOUT = """
import sys
sys.modules["cryptography"] = sys.modules["cryptography.fernet"] = None
from toolcrib.security.encryption import Cipher, NoKey, create_key
for use in (lambda: Cipher(b"x"), create_key):
    try:
        use()
    except NoKey as error:
        print(error.hint)
"""


def test_without_the_package_the_extra_is_named(state):
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert ended.stdout == "pip install 'toolcrib[encryption]'\n" * 2


def test_a_key_of_another_kind_is_refused():
    with pytest.raises(NoKey):
        Cipher(b"too short")
