"""JSON Schema of the environments' files, for editors; `python -m infra.spec.settings.schema` writes it."""

from __future__ import annotations

import json
from typing import Any

from infra.spec.settings.loading import ENVIRONMENTS, PROJECT
from infra.spec.settings.stack import StackSettings

SCHEMA_FILE = ENVIRONMENTS / "schema.json"


def environment_schema() -> dict[str, Any]:
    """The schema of an environment's file: one key per section."""
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Environment of {PROJECT}"}
    return {**StackSettings.model_json_schema(), **title}


def render() -> str:
    """The text of the schema file."""
    return json.dumps(environment_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(render(), encoding="utf-8")
