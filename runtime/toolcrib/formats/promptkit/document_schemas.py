"""The schemas of PromptKit's documents, and which of their keys have no counterpart here.

They are JSON Schemas. `x-idle` says why a key has no counterpart, `x-severity` how much that may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Shape: TypeAlias = dict[str, Any]

TEXT: Final[Shape] = {"type": ["string", "number", "boolean", "null"]}
NUMBER: Final[Shape] = {"type": ["number", "null"]}
INTEGER: Final[Shape] = {"type": ["integer", "null"]}
FLAG: Final[Shape] = {"type": ["boolean", "null"]}
ANYTHING: Final[Shape] = {}


def _object(properties: Mapping[str, Shape], *required: str, **more: Any) -> Shape:
    return {
        "type": ["object", "null"],
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def _list(items: Shape) -> Shape:
    return {"type": ["array", "null"], "items": items}


def _map(values: Shape) -> Shape:
    return {"type": ["object", "null"], "additionalProperties": values}


def _idle(why: str) -> Shape:
    """A key that changes nothing of what is tested."""
    return {"x-idle": why, "x-severity": "notice"}


def _lost(why: str) -> Shape:
    """A key that may change how the agent behaves, or what is found out of it."""
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
        "detail": _idle("no provider is told how closely to look at a picture"),
        "storage_reference": _lost("there is no storage of media"),
        "width": _idle("parts have no size"),
        "height": _idle("parts have no size"),
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
        "streaming": _idle("whether an answer streams is the provider's business, and changes no result"),
        "assistant_temp": _idle("the settings of a model hold for the whole conversation"),
        "user_temp": _idle("no model plays the user"),
        "seed": _idle("the seed holds for the whole scenario"),
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
        "mode": _idle("every scenario is a conversation of texts and calls"),
        "context": _idle("it describes the scenario and is given to nobody; `description` is for that"),
        "constraints": _idle("it describes the scenario and bounds nothing; `policy` bounds calls"),
        "streaming": _idle("whether an answer streams is the provider's business, and changes no result"),
        "required_capabilities": _idle("a scenario names its provider itself"),
        "context_policy": _lost("the whole conversation is sent in each request"),
        "duplex": _lost("there are no audio conversations"),
        "voice": _lost("there are no audio conversations"),
        "seed_memories": _lost("there is no memory; rows of `store` are what a scenario begins with"),
    },
    "turns",
)
_VARIABLE = _object(
    _with(
        {"name": TEXT, "default": ANYTHING, "required": FLAG},
        "variables are texts that are put in when the file is read",
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
        {"type": TEXT, "params": {"type": ["object", "null"]}, "enabled": FLAG, "message": TEXT},
        "a guardrail changes nothing of what is said; `guardrail_triggered` asks what it found",
        "id",
        "fail_on_violation",
        "monitor",
        "monitor_only",
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
            "evals": _lost("assertions stand in the scenarios"),
            "skills": _lost("there are no skills"),
            "media": _lost("a prompt is a text"),
            "media_config": _lost("a prompt is a text"),
            "model_overrides": _lost("a prompt has one text for all models"),
        },
        "it describes the prompt",
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
            "pricing": {"type": ["object", "null"]},
            "additional_config": {"type": ["object", "null"]},
            "headers": _map(TEXT),
            "credential": _object({"api_key": TEXT, "credential_file": TEXT, "credential_env": TEXT}),
            "platform": _object(
                {
                    "type": TEXT,
                    "endpoint": TEXT,
                    "additional_config": _object({"api_version": TEXT, "deployment": TEXT}),
                    "region": _idle("a platform is reached at its `endpoint`"),
                    "project": _idle("a platform is reached at its `endpoint`"),
                }
            ),
        },
        "it is the provider's own business",
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
_PERSONA_SPEC: Shape = {"type": ["object", "null"]}
_REF = _object({"file": TEXT}, "file")
_GONE_WITH = "nothing like it is part of a conversation with tools"
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
            "mcp_servers": _list({"type": ["object", "null"]}),
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
                        "fail_on": _idle(
                            "an assertion that does not hold and a provider that fails always fail the run"
                        ),
                        "timeout": _idle("each call and each request has its own timeout"),
                        "run_timeout": _idle("each call and each request has its own timeout"),
                        "concurrency": _idle("`toolcrib run --jobs` says how many run at once"),
                    },
                    "`toolcrib run` says on its command line what it prints and writes",
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
            "deploy": _idle("nothing is deployed"),
            "state_store": _idle("a conversation is kept by whoever runs it"),
            "pack_file": _lost("a PromptPack is loaded by itself: name it beside this file"),
            "a2a_agents": _lost("agents are not called as tools yet"),
            "skills": _lost("there are no skills"),
            "memory": _lost("there is no memory"),
            "runtime": _lost("hooks and sandboxes of PromptKit are not run"),
            "workflow": _lost("a scenario has one prompt, and no states that change it"),
            "compositions": _lost("a scenario has one prompt, and no steps that it is composed of"),
            "pack_evals": _lost("assertions stand in the scenarios"),
            "evals": _lost("recorded conversations are not judged again"),
            "eval_specs": _lost("recorded conversations are not judged again"),
            "judge_defaults": _lost("a judge is asked in the words of each assertion"),
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
            _lost("a scripted reply is text and calls"),
        ),
        "metadata": _idle("a part has no metadata"),
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
            "audio_file": _lost("there are no audio conversations"),
            "audio_sample_rate": _idle("there are no audio conversations"),
            "audio_mime_type": _idle("there are no audio conversations"),
        }
    ),
    "type": ["string", "number", "boolean", "object", "null"],
}
_RESPONSES = _object(
    {
        "defaultResponse": TEXT,
        "default_response": TEXT,
        "turns": {**_map(_RESPONSE), "propertyNames": {"pattern": "^[0-9]+$"}},
        "steps": _lost("a scenario has one prompt, and no steps that it is composed of"),
    }
)
RESPONSES: Final = _object(
    {
        "defaultResponse": TEXT,
        "default_response": TEXT,
        "scenarios": _map(_RESPONSES),
        "selfplay": _map(_RESPONSES),
        "judges": _idle("a judge is asked, and not scripted"),
    }
)
"""A file of mock responses."""

_METADATA = _object(
    {
        "name": TEXT,
        "description": _idle("it describes the document, as `description` of its `spec` does"),
        "namespace": _idle("names of scenarios have no namespace"),
        "labels": _map(TEXT),
        "annotations": _idle("they are notes for people and other programs"),
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
