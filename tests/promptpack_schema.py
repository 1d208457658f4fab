"""What a PromptPack of version 1.4 is: closed objects, so that nothing of ours slips into an export."""

from __future__ import annotations

from typing import Any

TEXT = {"type": "string", "minLength": 1}
SEMVER = {
    "type": "string",
    "pattern": r"^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$",
}


def closed(needs: list[str], /, **properties: Any) -> dict[str, Any]:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": needs,
        "properties": properties,
    }


def mapping(of: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of, **more}


def listing(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


COUNT = {"type": "integer", "minimum": 1}
VARIABLE = closed(
    ["name", "type", "required"],
    name={"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
    type=TEXT,
    required={"type": "boolean"},
    default=True,
    description={"type": "string"},
    example=True,
    validation=closed(
        [],
        pattern={"type": "string"},
        min_length={"type": "integer"},
        max_length={"type": "integer"},
        minimum={"type": "number"},
        maximum={"type": "number"},
        enum={"type": "array"},
    ),
    binding={"type": "object"},
) | {"not": {"required": ["default"], "properties": {"required": {"const": True}}}}

PROMPT = closed(
    ["id", "name", "version", "system_template"],
    id={"type": "string", "pattern": "^[a-z][a-z0-9_-]*$"},
    name=TEXT,
    description={"type": "string"},
    version=SEMVER,
    system_template=TEXT,
    variables=listing(VARIABLE),
    tools=listing(TEXT),
    tool_policy=closed(
        [],
        tool_choice={"enum": ["auto", "required", "none"]},
        max_rounds=COUNT,
        max_tool_calls_per_turn=COUNT,
        blocklist=listing(TEXT),
    ),
    pipeline={"type": "object"},
    parameters=closed(
        [],
        temperature={"type": "number"},
        max_tokens=COUNT,
        top_p={"type": "number"},
        top_k={"type": ["integer", "null"]},
        frequency_penalty={"type": "number"},
        presence_penalty={"type": "number"},
    ),
    validators=listing(
        closed(
            ["type"],
            type=TEXT,
            enabled={"type": "boolean"},
            message={"type": "string"},
            fail_on_violation={"type": "boolean"},
            params={"type": "object"},
        )
    ),
    evals={"type": "array"},
    tested_models={"type": "array"},
    model_overrides={"type": "object"},
    media={"type": "object"},
)

TOOL = closed(
    ["name", "description"],
    name={"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
    description=TEXT,
    parameters={
        "type": "object",
        "required": ["type", "properties"],
        "properties": {
            "type": {"const": "object"},
            "properties": mapping({"type": "object"}),
            "required": listing({"type": "string"}),
        },
    },
)

PROMPTPACK = closed(
    ["id", "name", "version", "template_engine", "prompts"],
    **{"$schema": TEXT},
    id={"type": "string", "pattern": "^[a-z][a-z0-9-]*$", "maxLength": 100},
    name={**TEXT, "maxLength": 200},
    version=SEMVER,
    description={"type": "string", "maxLength": 5000},
    template_engine=closed(
        ["version", "syntax"], version=TEXT, syntax=TEXT, features=listing({"type": "string"})
    ),
    prompts=mapping(PROMPT, minProperties=1),
    fragments=mapping({"type": "string"}),
    tools=mapping(TOOL),
    metadata={"type": "object"},
    compilation={"type": "object"},
    evals={"type": "array"},
    workflow={"type": "object"},
    agents={"type": "object"},
    skills={"type": "array"},
    compositions={"type": "object"},
)
