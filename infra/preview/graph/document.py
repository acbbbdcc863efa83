"""A recording as JSON, with every property."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from infra.preview.recording import UNKNOWN, Recording, Resource

SECRET = "[secret]"  # noqa: S105  # placeholder for a secret


def render(recording: Recording) -> str:
    """Resources by URN and the stack's outputs; secrets are masked, unknown values are null."""
    document = {
        "resources": {one.urn: asdict(replace(one, properties=without_secrets(one))) for one in recording.resources},
        "outputs": _hidden(recording.outputs, recording.secret_outputs, ""),
    }
    return json.dumps(document, indent=2, sort_keys=True, default=_plain) + "\n"


def _plain(value: object) -> object:
    if value is UNKNOWN:
        return None
    assert isinstance(value, frozenset), f"unexpected {value!r} in a recording"
    return sorted(value)


def without_secrets(resource: Resource) -> dict[str, Any]:
    """The inputs of a resource, with `SECRET` in the place of every secret."""
    properties = _hidden(resource.properties, resource.secrets, "")
    assert isinstance(properties, dict)
    return properties


def _hidden(value: object, secrets: frozenset[str], path: str) -> object:
    if path in secrets:
        return SECRET
    if isinstance(value, dict):
        return {key: _hidden(member, secrets, f"{path}.{key}" if path else key) for key, member in value.items()}
    if isinstance(value, list):
        return [_hidden(member, secrets, f"{path}.{index}") for index, member in enumerate(value)]
    return value
