"""JSON Schemas of PromptKit's documents, which also mark the keys without a counterpart.

`x-idle` is the reason why a key has no effect, `x-severity` how much that may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Shape: TypeAlias = dict[str, Any]

PRICES: Final[Mapping[str, str]] = {
    "input_cost_per_1k": "input",
    "output_cost_per_1k": "output",
    "cached_cost_per_1k": "cached",
    "cache_read_cost_per_1k": "cached",
    "cache_write_cost_per_1k": "cache_writes",
}
"""Price of PromptKit -> ours."""

# Every type allows null, because Go decodes null to the zero value, as for a missing key. YAML reads unquoted
# `1.0` and `yes` as other types than text.
TEXT: Final[Shape] = {"type": ["string", "number", "boolean", "null"]}
NUMBER: Final[Shape] = {"type": ["number", "null"]}
INTEGER: Final[Shape] = {"type": ["integer", "null"]}
FLAG: Final[Shape] = {"type": ["boolean", "null"]}
_PRICE: Final[Shape] = {"type": ["number", "null"], "minimum": 0}
ANYTHING: Final[Shape] = {}


def _object(properties: Mapping[str, Shape], *required: str, **more: Any) -> Shape:
    return {
        "type": ["object", "null"],
        "properties": dict(properties),
        "required": list(required),
        # `check_document` turns unknown keys into warnings.
        "additionalProperties": False,
        **more,
    }


def _list(items: Shape) -> Shape:
    return {"type": ["array", "null"], "items": items}


def _map(values: Shape) -> Shape:
    return {"type": ["object", "null"], "additionalProperties": values}


def _idle(why: str) -> Shape:
    """A key without effect on what is tested."""
    return {"x-idle": why, "x-severity": "notice"}


def _lost(why: str) -> Shape:
    """A key that may change the agent's behaviour or the verdict."""
    return {"x-idle": why, "x-severity": "warning"}


def _with(properties: Mapping[str, Shape], why: str, *keys: str) -> dict[str, Shape]:
    return {**properties, **dict.fromkeys(keys, _idle(why))}


_WHEN = _object(
    {"tool_called": TEXT, "tool_called_pattern": TEXT, "any_tool_called": FLAG, "min_tool_calls": INTEGER}
)
ASSERTION: Final = _object(
    {
        "type": TEXT,
        "params": {"type": ["object", "null"]},
        "message": TEXT,
        "when": _WHEN,
        "pass_threshold": NUMBER,
    },
    "type",
)
_POLICY = _object(
    {
        "tool_choice": TEXT,
        "max_rounds": INTEGER,
        "max_tool_calls_per_turn": INTEGER,
        "max_total_tool_calls": INTEGER,
        "max_calls_per_minute": INTEGER,
        "max_parallel_tool_calls": INTEGER,
        "max_identical_tool_calls": INTEGER,
        "max_cost_usd": NUMBER,
        "blocklist": _list(TEXT),
        "stop_on_tool": {"type": ["array", "string", "null"], "items": TEXT},
    }
)
_MEDIA = _object(
    {
        "file_path": TEXT,
        "url": TEXT,
        "data": TEXT,
        "mime_type": TEXT,
        "caption": TEXT,
        "detail": _idle("the resolution of images is not passed to providers"),
        "storage_reference": _lost("media storage is not supported"),
        "width": _idle("sizes of media are not supported"),
        "height": _idle("sizes of media are not supported"),
    }
)
_PART = _object({"type": TEXT, "text": TEXT, "media": _MEDIA}, "type")
_FAILURE = _object({"tool": TEXT, "mode": TEXT, "probability": NUMBER, "message": TEXT}, "tool", "mode")
TURN: Final = _object(
    {
        "role": TEXT,
        "content": TEXT,
        "parts": _list(_PART),
        "persona": TEXT,
        "turns": INTEGER,
        "max_turns": INTEGER,
        "assertions": _list(ASSERTION),
        "consent_overrides": _map(TEXT),
        "perturbations": _map(_list(TEXT)),
        "chaos": _object({"tool_failures": _list(_FAILURE)}),
        "streaming": _idle("streaming depends on the provider and does not change the result"),
        "assistant_temp": _idle("model settings apply to the whole conversation"),
        "user_temp": _idle("simulating the user with a model is not supported"),
        "seed": _idle("the seed applies to the whole scenario"),
    },
    "role",
)
_SCENARIO_SPEC = _object(
    {
        "id": TEXT,
        "task_type": TEXT,
        "description": TEXT,
        "turns": _list(TURN),
        "variables": _map(TEXT),
        "tool_policy": _POLICY,
        "providers": _list(TEXT),
        "provider_group": TEXT,
        "conversation_assertions": _list(ASSERTION),
        "trials": INTEGER,
        "pass_threshold": NUMBER,
        "context_metadata": _object({"domain": TEXT, "user_role": TEXT, "project_stage": TEXT}),
        "mode": _idle("every scenario is a conversation with texts and calls"),
        "context": _idle("it only describes the scenario, as `description` does"),
        "constraints": _idle("it only describes the scenario; use `tool_policy` to limit calls"),
        "streaming": _idle("streaming depends on the provider and does not change the result"),
        "required_capabilities": _idle("scenarios select providers by name"),
        "context_policy": _lost("every request contains the whole conversation"),
        "duplex": _lost("audio conversations are not supported"),
        "voice": _lost("audio conversations are not supported"),
        "seed_memories": _lost("memory is not supported; use rows of `store` for initial data"),
    },
    "turns",
)
_VARIABLE = _object(
    _with(
        {"name": TEXT, "default": ANYTHING, "required": FLAG},
        "variables are texts that are filled in when the file is read",
        "type",
        "values",
        "validation",
        "example",
        "examples",
        "binding",
    )
    | {"description": TEXT},
    "name",
)
_VALIDATOR = _object(
    _with(
        {
            "type": TEXT,
            "params": {"type": ["object", "null"]},
            "enabled": FLAG,
            "message": TEXT,
            "monitor": FLAG,
            "monitor_only": FLAG,
        },
        "a violation rewrites the reply and does not fail the run; use `guardrail_triggered` to check for it",
        "id",
        "fail_on_violation",
    ),
    "type",
)
_PROMPT_SPEC = _object(
    _with(
        {
            "id": TEXT,
            "name": TEXT,
            "task_type": TEXT,
            "version": TEXT,
            "description": TEXT,
            "system_template": TEXT,
            "allowed_tools": _list(TEXT),
            "tools": _list(TEXT),
            "tool_policy": _POLICY,
            "variables": _list(_VARIABLE),
            "optional_vars": _map(ANYTHING),
            "required_vars": _list(TEXT),
            "fragments": _list(
                _object(
                    {"name": TEXT, "path": TEXT, "file": TEXT, "required": FLAG, "description": TEXT}, "name"
                )
            ),
            "parameters": {"type": ["object", "null"]},
            "validators": _list(_VALIDATOR),
            "evals": _lost("use assertions in scenarios"),
            "skills": _lost("skills are not supported"),
            "media": _lost("prompts contain only text"),
            "media_config": _lost("prompts contain only text"),
            "model_overrides": _lost("prompts have the same text for all models"),
        },
        "it only describes the prompt",
        "template_engine",
        "tested_models",
        "metadata",
        "compilation",
        "voice_profile",
        "notes",
        "tags",
        "predicates",
    )
)
_PROVIDER_SPEC = _object(
    _with(
        {
            "id": TEXT,
            "type": TEXT,
            "model": TEXT,
            "role": TEXT,
            "base_url": TEXT,
            "defaults": {"type": ["object", "null"]},
            "pricing": _object(dict.fromkeys(PRICES, _PRICE), additionalProperties=True),
            "additional_config": {"type": ["object", "null"]},
            "headers": _map(TEXT),
            "credential": _object({"api_key": TEXT, "credential_file": TEXT, "credential_env": TEXT}),
            "platform": _object(
                {
                    "type": TEXT,
                    "endpoint": TEXT,
                    "additional_config": _object({"api_version": TEXT, "deployment": TEXT}),
                    "region": _idle("platforms are reached by `endpoint`"),
                    "project": _idle("platforms are reached by `endpoint`"),
                }
            ),
        },
        "it only affects the provider",
        "include_raw_output",
        "rate_limit",
        "capabilities",
        "timeout",
        "timeout_ms",
        "request_timeout",
        "stream_idle_timeout",
        "stream_retry",
        "http_transport",
        "stream_max_concurrent",
        "unsupported_params",
        "validators",
    ),
    "type",
)
# Only the name of a persona matters: no model simulates the user.
_PERSONA_SPEC: Shape = {"type": ["object", "null"]}
_REF = _object({"file": TEXT}, "file")
_GONE_WITH = "conversations with tools do not use it"
_SERVER = _object(
    {
        **dict.fromkeys(("name", "command", "working_dir", "url", "transport", "scope", "source"), TEXT),
        "args": _list(TEXT),
        "env": _map(TEXT),
        "headers": _map(TEXT),
        "timeout_ms": INTEGER,
        "tool_filter": _object({"allowlist": _list(TEXT), "blocklist": _list(TEXT)}),
        "source_args": ANYTHING,
    }
)
# A card is a document of the A2A protocol, of which only these parts matter for a mock.
_SKILL: Shape = {
    **_object(dict.fromkeys(("id", "name", "description"), TEXT), "id"),
    "additionalProperties": ANYTHING,
}
_MODES = _list(TEXT)
_SKILL["properties"] |= {"inputModes": _MODES, "outputModes": _MODES}
_CARD: Shape = {
    **_object(
        {
            "name": TEXT,
            "skills": _list(_SKILL),
            "defaultInputModes": _MODES,
            "defaultOutputModes": _MODES,
        }
    ),
    "additionalProperties": ANYTHING,
}
_AGENT = _object(
    _with(
        {
            "name": TEXT,
            "card": _CARD,
            "responses": _list(
                _object(
                    {
                        "skill": TEXT,
                        "match": _object({"contains": TEXT, "regex": TEXT}),
                        "response": _object({"parts": _list(_object({"text": TEXT}))}),
                        "error": TEXT,
                    }
                )
            ),
            "url": TEXT,
            "skill_filter": _object({"allowlist": _list(TEXT), "blocklist": _list(TEXT)}),
        },
        "mocked agents are not contacted",
        "auth",
        "headers",
        "headers_from_env",
        "timeout_ms",
        "retry",
    )
)
_ARENA_SPEC = _object(
    _with(
        {
            "prompt_configs": _list(_object({"id": TEXT, "file": TEXT, "vars": _map(TEXT)}, "file")),
            "providers": _list(_object({"file": TEXT, "group": TEXT}, "file")),
            "scenarios": _list(_REF),
            "tools": _list(_REF),
            "prompt_specs": _map(_PROMPT_SPEC),
            "provider_specs": _map(_PROVIDER_SPEC),
            "scenario_specs": _map(_SCENARIO_SPEC),
            "tool_specs": _map({"type": ["object", "null"]}),
            "judges": _list(_object({"name": TEXT, "provider": TEXT, "model": TEXT}, "name", "provider")),
            "judge_specs": _map(_object({"provider": TEXT, "model": TEXT}, "provider")),
            "globals": _object({"conversation_assertions": _list(ASSERTION)}),
            "mcp_servers": _list(_SERVER),
            "self_play": _object(
                {
                    "enabled": FLAG,
                    "personas": _list(_REF),
                    "persona_specs": _map(_PERSONA_SPEC),
                    "roles": _list(_object({"id": TEXT, "provider": TEXT}, "id")),
                }
            ),
            "defaults": _object(
                _with(
                    {
                        "temperature": NUMBER,
                        "max_tokens": INTEGER,
                        "seed": INTEGER,
                        "config_dir": TEXT,
                        "fail_on": _idle("failed assertions and provider errors always fail the run"),
                        "timeout": _idle("every call and every request has its own timeout"),
                        "run_timeout": _idle("every call and every request has its own timeout"),
                        "concurrency": _idle("use `toolcrib run --jobs`"),
                    },
                    "use the options of `toolcrib run`",
                    "output",
                    "verbose",
                    "monitor",
                    "inference",
                    "html_report",
                    "out_dir",
                    "output_formats",
                    "markdown_config",
                )
            ),
            "deploy": _idle("deployment is not supported"),
            "state_store": _idle("the caller stores conversations"),
            "pack_file": _lost("load the PromptPack as another source, next to this file"),
            "a2a_agents": _list(_AGENT),
            "skills": _lost("skills are not supported"),
            "memory": _lost("memory is not supported"),
            "runtime": _lost("hooks and sandboxes are not supported"),
            "workflow": _lost("a scenario has one prompt, without states"),
            "compositions": _lost("a scenario has one prompt, without steps"),
            "pack_evals": _lost("use assertions in scenarios"),
            "evals": _lost("evaluating recorded conversations is not supported"),
            "eval_specs": _lost("evaluating recorded conversations is not supported"),
            "judge_defaults": _lost("every assertion has its own instructions for the judge"),
        },
        _GONE_WITH,
        "agents",
        "voices",
        "tts_providers",
        "stt_providers",
        "embedding_providers",
        "image_providers",
        "inference",
    )
)
_CALL = _object({"name": TEXT, "arguments": {"type": ["object", "null"]}}, "name")
_RESPONSE_PART = _object(
    {
        "type": TEXT,
        "text": TEXT,
        **dict.fromkeys(
            ("image_url", "audio_url", "video_url", "document_url", "media"),
            _lost("scripted replies contain only texts and calls"),
        ),
        "metadata": _idle("parts have no metadata"),
    }
)
_RESPONSE: Shape = {
    **_object(
        {
            "type": TEXT,
            "content": TEXT,
            "text": TEXT,
            "response": TEXT,
            "tool_calls": _list(_CALL),
            "parts": _list(_RESPONSE_PART),
            "audio_file": _lost("audio conversations are not supported"),
            "audio_sample_rate": _idle("audio conversations are not supported"),
            "audio_mime_type": _idle("audio conversations are not supported"),
        }
    ),
    # A scalar is short for its `content`.
    "type": ["string", "number", "boolean", "object", "null"],
}
_RESPONSES = _object(
    {
        "defaultResponse": TEXT,
        "default_response": TEXT,
        # The keys are numbers in YAML; the reader of mock responses turns them into texts.
        "turns": {**_map(_RESPONSE), "propertyNames": {"pattern": "^[0-9]+$"}},
        "steps": _lost("a scenario has one prompt, without steps"),
    }
)
RESPONSES: Final = _object(
    {
        "defaultResponse": TEXT,
        "default_response": TEXT,
        "scenarios": _map(_RESPONSES),
        "selfplay": _map(_RESPONSES),
        "judges": _idle("judges are not scripted"),
    }
)
"""Shape of a file of mock responses."""

_METADATA = _object(
    {
        "name": TEXT,
        "description": _idle("it only describes the document, as `description` in `spec` does"),
        "namespace": _idle("scenarios have no namespace"),
        "labels": _map(TEXT),
        "annotations": _idle("they are for people and other programs"),
    }
)


def _manifest(spec: Shape) -> Shape:
    properties = {"apiVersion": TEXT, "kind": TEXT, "metadata": _METADATA, "spec": {**spec, "type": "object"}}
    return _object({**properties, "$schema": TEXT}, "spec")


MANIFESTS: Final[Mapping[str, Shape]] = {
    "Arena": _manifest(_ARENA_SPEC),
    "Scenario": _manifest(_SCENARIO_SPEC),
    "PromptConfig": _manifest(_PROMPT_SPEC),
    "Provider": _manifest(_PROVIDER_SPEC),
    "Persona": _manifest(_PERSONA_SPEC),
}
"""Kind of a manifest -> its shape."""
