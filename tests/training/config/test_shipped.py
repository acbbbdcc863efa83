"""The shipped configurations and the JSON Schema for editors."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator

from infra.spec.yaml_text import read_file
from training.config import json_schema
from training.config.sources import SHIPPED, shipped_names

SCHEMA: dict[str, Any] = json.loads(json_schema.text())


def test_the_committed_schema_is_the_generated_one() -> None:
    assert json_schema.PATH.read_text(encoding="utf-8") == json_schema.text(), (
        "run python -m training.config.json_schema"
    )


def test_every_key_has_a_description() -> None:
    described = {
        f"{section}.{key}": "description" in field
        for section, body in SCHEMA["$defs"].items()
        for key, field in body["properties"].items()
    }
    assert len(described) > 50
    assert [key for key, is_described in described.items() if not is_described] == []


def test_shipped_configurations_satisfy_the_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for name in shipped_names():
        file = SHIPPED / f"{name}.yaml"
        assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(read_file(file).value)] == [], name
        assert file.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=schema.json\n# "), name
