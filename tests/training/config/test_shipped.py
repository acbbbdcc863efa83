"""The shipped configurations and the JSON Schema for editors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from infra.spec.yaml_text import read_file
from training.config import json_schema
from training.config.sources import SHIPPED, shipped_names

SCHEMA: dict[str, Any] = json.loads(json_schema.text())


def test_the_committed_schema_is_the_generated_one() -> None:
    assert json_schema.PATH.read_text(encoding="utf-8") == json_schema.text(), (
        "run python -m training.config.json_schema"
    )


def test_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_every_key_has_a_description() -> None:
    described = [
        (section, key, bool(field.get("description")))
        for section, body in SCHEMA["$defs"].items()
        for key, field in body["properties"].items()
    ]
    assert len(described) > 50
    assert [entry for entry in described if not entry[2]] == []


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_configuration_satisfies_the_schema(name: str) -> None:
    values = read_file(SHIPPED / f"{name}.yaml").value
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(values)] == []


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_configuration_starts_with_its_schema_and_a_description(name: str) -> None:
    first, second, *_ = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    assert first == "# yaml-language-server: $schema=schema.json"
    assert second.startswith("# ")
