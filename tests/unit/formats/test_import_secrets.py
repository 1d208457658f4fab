"""Secrets in imported descriptors become `${NAME}`, and no other place keeps them."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.formats.imported_tools import ImportedTool, ImportedTools
from toolcrib.formats.imports.secrets import tells_secret, without_secrets
from toolcrib.security.secret_forms import is_random, secrets_in


def cleaned(descriptor, *more):
    made = without_secrets(ImportedTools([ImportedTool("t", descriptor), *more]))
    return made.tools[0].descriptor, [remark.message for remark in made.remarks if remark.kind == "secret"]


# Put together, so that no scanner takes this file for a leak.
TOKENS = {
    "GITHUB_TOKEN": "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a",
    "OPENAI_API_KEY": "sk" + "-proj-abcDEF123456abcDEF123456abcDEF",
    "ANTHROPIC_API_KEY": "sk-" + "ant-api03-abcDEF123456abcDEF123456",
    "STRIPE_API_KEY": "sk" + "_live_4eC39HqLyjWDarjtT1zdp7dc",
    "SLACK_TOKEN": "xox" + "b-2444333222111-abcdefABCDEF",
    "AWS_ACCESS_KEY_ID": "AKIA" + "IOSFODNN7EXAMPLE",
    "GOOGLE_API_KEY": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "GITLAB_TOKEN": "glpat" + "-abcdefghij1234567890",
    "HF_TOKEN": "hf_" + "abcdefghijklmnopqrstuvwxyz012345",
    "TOKEN": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0.abc123_-def",
    "PRIVATE_KEY": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("name", TOKENS)
def test_keys_of_services_are_found_in_any_text(name):
    token = TOKENS[name]
    descriptor, told = cleaned({"name": "t", "description": f"Send `{token}` as it is."})
    assert descriptor["description"] == f"Send `${{{name}}}` as it is."
    assert told == [f"a secret was replaced by `${{{name}}}` (at /description of the descriptor)"]


def test_places_tell_secrets_by_their_names():
    descriptor, told = cleaned(
        {
            "name": "t",
            "input_schema": {
                "properties": {
                    "password": {"type": "string", "default": "hunter2", "description": "a password"},
                    "page_token": {"type": "string", "default": "abc"},
                }
            },
            "live": {
                "url": "https://api.example/v1?api_key=abcdef123456&limit=3",
                "headers": {
                    "Authorization": "Bearer abc.def",
                    "X-Session": "9f8e7d6c5b4a39281706f5e4d3c2b1a0",
                },
                "auth": {
                    "type": "oauth2",
                    "token_url": "https://api.example/token",
                    "client_secret": "${CLIENT}",
                },
            },
            "examples": [{"args": {"password": "p4ss"}, "result": {"echo": "abcdef123456"}}],
            "mock": {"result": {"token": "letmein99"}},
        }
    )
    assert descriptor["input_schema"]["properties"] == {
        "password": {"type": "string", "default": "${PASSWORD}", "description": "a password"},
        "page_token": {"type": "string", "default": "abc"},
    }
    assert descriptor["live"] == {
        "url": "https://api.example/v1?api_key=${API_KEY}&limit=3",
        "headers": {"Authorization": "Bearer ${AUTHORIZATION}", "X-Session": "${X_SESSION}"},
        "auth": {"type": "oauth2", "token_url": "https://api.example/token", "client_secret": "${CLIENT}"},
    }
    assert descriptor["examples"] == [
        {"args": {"password": "${PASSWORD_2}"}, "result": {"echo": "${API_KEY}"}}
    ]
    # A mock is a template, in which variables have no values.
    assert descriptor["mock"] == {"result": {"token": "$${TOKEN}"}}
    assert len(told) == 7


def test_words_and_references_are_no_secrets():
    plain = {
        "name": "t",
        "description": "Uses basic authentication, or a bearer authentication-token. Pass the password as it is.",
        "input_schema": {
            "properties": {
                "token_type": {"enum": ["bearer", "basic"], "default": "bearer"},
                "password": {"default": "string"},
                "auth_token": {"default": ""},
                "token_symbol": {"default": "ETH"},
            }
        },
        "live": {
            "headers": {
                "Authorization": "Bearer {{ args.token }}",
                "X-Trace": "00000000-0000-4000-8000-000000000000",
            }
        },
        "tags": ["secret"],
    }
    assert cleaned(plain) == (plain, [])


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        *(("password", True), ("X-Api-Key", True), ("access_token", True), ("Cookie", True)),
        *(
            ("token_url", False),
            ("nextPageToken", False),
            ("token_endpoint_auth_method", False),
            ("key", False),
            ("secret_scanning", False),
            ("secret_scanning_push_protection", False),
        ),
        *(("passwordConfirmation", True), ("client_secret_value", True), ("password2", True)),
    ],
)
def test_names(name, tells):
    assert tells_secret(name) is tells


def test_objects_that_describe_secrets_and_listed_values_are_no_secrets():
    plain = {
        "name": "t",
        "input_schema": {
            "properties": {
                "secret_scanning": {"type": "string", "default": "disabled"},
                "auth_token": {"enum": ["none-at-all", "per-user"], "default": "per-user"},
            }
        },
        "mock": {
            "result": {
                "auth_token": "per-user",
                "secrets": [{"name": "GH_TOKEN", "created_at": "2020-01-10T10:59:22Z", "visibility": "all"}],
                "token": {"type": "bearer-token", "expires": "2020-01-10T10:59:22Z"},
            }
        },
    }
    assert cleaned(plain) == (plain, [])
    descriptor, _told = cleaned(
        {"name": "t", "mock": {"result": {"secrets": ["hunter2!"], "token": {"x": "letmein99"}}}}
    )
    assert descriptor["mock"]["result"] == {"secrets": ["$${SECRETS}"], "token": {"x": "$${TOKEN}"}}


def test_random_texts():
    assert is_random("9f8e7d6c5b4a39281706f5e4d3c2b1a0")
    assert not is_random("00000000-0000-4000-8000-000000000000")
    assert not is_random("this-is-a-plain-sentence-of-words")
    assert not is_random("1234")


def test_the_same_secret_has_one_name_in_all_tools():
    one = {"name": "a", "live": {"headers": {"X-Api-Key": "abcdef123456"}}}
    two = {"name": "b", "live": {"headers": {"Authorization": "abcdef123456"}}, "description": "abcdef123456"}
    made = without_secrets(ImportedTools([ImportedTool("a", one), ImportedTool("b", two)]))
    texts = [json.dumps(tool.descriptor) for tool in made.tools]
    assert all("${X_API_KEY}" in text and "abcdef123456" not in text for text in texts)


def test_a_word_that_is_a_password_stays_elsewhere():
    descriptor, _told = cleaned(
        {
            "name": "t",
            "description": "For postgres.",
            "examples": [{"args": {"password": "postgres", "kind": "postgres"}}],
        }
    )
    assert descriptor["description"] == "For postgres."
    assert descriptor["examples"][0]["args"] == {"password": "${PASSWORD}", "kind": "postgres"}


CANARIES = st.text("ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz23456789", min_size=16, max_size=40).filter(
    lambda text: any(map(str.isdigit, text)) and any(map(str.isalpha, text))
)
SECRET_NAMES = st.sampled_from(
    ["password", "X-Api-Key", "authorization", "client_secret", "Cookie", "refreshToken"]
)
PLAIN_NAMES = st.sampled_from(["id", "note", "city", "q"])
PLACES = st.sampled_from(["header", "example", "default", "url", "json", "mock"])
ECHOES = st.sampled_from(["plain", "base64", "url", "in text", "json", "key"])


@st.composite
def recordings(draw):
    """A descriptor with a secret at a place that tells it, and copies of it anywhere else."""
    canary, name = draw(CANARIES), draw(SECRET_NAMES)
    descriptor = {
        "name": "t",
        "description": "d",
        "examples": [],
        "metadata": {},
        "live": {"headers": {}, "url": "https://a.example"},
    }
    match draw(PLACES):
        case "header":
            descriptor["live"]["headers"][name] = canary
        case "example":
            descriptor["examples"].append({"args": {"deep": [{name: canary}]}})
        case "default":
            descriptor["input_schema"] = {"properties": {name: {"default": canary}}}
        case "url":
            descriptor["live"]["url"] = f"https://a.example/?{name}={canary}"
        case "json":
            descriptor["live"]["body"] = json.dumps({"user": "u", name: canary})
        case "mock":
            descriptor["mock"] = {"result": [{name: canary}]}
    for place, echo in enumerate(draw(st.lists(ECHOES, max_size=3))):
        written = {
            "plain": canary,
            "base64": base64.b64encode(f"user:{canary}".encode()).decode(),
            "url": f"https://b.example/{quote(canary)}/x",
            "in text": f"the value {canary} was refused",
            "json": json.dumps(json.dumps({"v": canary})),
            "key": {canary: 1},
        }[echo]
        descriptor["metadata"][f"{draw(PLAIN_NAMES)}{place}"] = written
    return canary, descriptor


@settings(max_examples=80, deadline=None)
@given(recordings())
def test_a_recording_never_carries_a_secret_into_a_file(recording):
    canary, descriptor = recording
    made, told = cleaned(descriptor)
    text = json.dumps(made)
    assert canary not in text
    assert base64.b64encode(f"user:{canary}".encode()).decode() not in text
    assert told
    assert not any(canary in message for message in told)


def test_forms_do_not_overlap():
    text = f"Authorization: Bearer {TOKENS['TOKEN']}"
    (found,) = secrets_in(text)
    assert text[found.start : found.end] == TOKENS["TOKEN"]
