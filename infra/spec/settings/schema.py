"""JSON Schema of the stack files, for editors; `python -m infra.spec.settings.schema` writes it."""

from __future__ import annotations

import json
from typing import Any

from infra.spec.settings.loading import ENVIRONMENTS, NAMESPACE
from infra.spec.settings.stack import StackSettings

SCHEMA_FILE = ENVIRONMENTS / "schema.json"


def stack_file_schema() -> dict[str, Any]:
    """The schema of a stack file: Pulumi's own keys, and one key per section."""
    settings = StackSettings.model_json_schema()
    sections = {f"{NAMESPACE}:{name}": schema for name, schema in settings["properties"].items()}
    config = {
        "type": "object",
        "properties": sections,
        "required": [f"{NAMESPACE}:{name}" for name in settings["required"]],
        "patternProperties": {"^pulumi:": True},
        "additionalProperties": False,
    }
    text = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Stack file of {NAMESPACE}",
        "type": "object",
        "properties": {
            "config": config,
            "environment": {},
            "encryptionsalt": text,
            "secretsprovider": text,
            "encryptedkey": text,
        },
        "required": ["config"],
        "additionalProperties": False,
        "$defs": settings["$defs"],
    }


def render() -> str:
    """The text of the schema file."""
    return json.dumps(stack_file_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(render(), encoding="utf-8")
