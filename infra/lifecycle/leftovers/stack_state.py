"""The resources that Pulumi's state of a stack has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.lifecycle.stack.state import export_state, resources_in
from infra.spec.stack_outputs import NoStackError

_IDENTITIES = ("arn", "name", "keyId", "url")
"""Outputs that a service may list a resource by, besides the ID."""


def resources_in_state(environment: str) -> frozenset[str] | None:
    """IDs, ARNs and names of the AWS resources of a stack; None if there is no stack.

    Raises:
        RefusedError: there is no `pulumi`.
        PlatformError: pulumi failed; carries its message.
    """
    try:
        resources = resources_in(export_state(environment))
    except NoStackError:
        return None
    return frozenset(name for one in resources if one["type"].startswith("aws:") for name in _names(one))


def _names(resource: Mapping[str, Any]) -> Iterator[str]:
    outputs = resource.get("outputs") or {}
    yield from (str(value) for value in (resource.get("id"), *map(outputs.get, _IDENTITIES)) if value)
