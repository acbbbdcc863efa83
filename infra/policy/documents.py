"""Statements of IAM policy documents, with every element normalised to a tuple."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Resource

_IDENTITY_DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    tokens.ROLE: ("inlinePolicies.*.policy",),
    tokens.ROLE_POLICY: ("policy",),
    tokens.IAM_POLICY: ("policy",),
}
"""Paths of identity-based policies by resource type; `*` is every element of a list."""

_RESOURCE_DOCUMENTS: Mapping[str, str] = {
    tokens.BUCKET_POLICY: "policy",
    tokens.FILE_SYSTEM_POLICY: "policy",
    tokens.KEY: "policy",
    tokens.ROLE: "assumeRolePolicy",
    "aws:ecr/repositoryPolicy:RepositoryPolicy": "policy",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "policy",
}
"""Paths of resource-based policies and trust policies by resource type."""

RESOURCE_DOCUMENT_TYPES = tuple(_RESOURCE_DOCUMENTS)
IDENTITY_DOCUMENT_TYPES = tuple(_IDENTITY_DOCUMENTS)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement.

    Attributes:
        sid: the Sid; empty without one.
        allows: whether the effect is Allow.
        actions: Action, or elements of NotAction with the prefix `NotAction:`.
        resources: Resource, or elements of NotResource with the prefix `NotResource:`.
        principals: Principal as `type:value`; `*` for anonymous.
        condition: values by condition key by operator.
    """

    sid: str
    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    principals: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]]

    @property
    def condition_keys(self) -> frozenset[str]:
        """Condition keys in lower case; IAM ignores their case."""
        return frozenset(key.lower() for keys in self.condition.values() for key in keys)


def statements(document: object) -> Iterator[Statement]:
    """Statements of a policy document; none if the document is unknown or absent.

    Raises:
        ValueError: the document is not a JSON object.
    """
    if document is UNKNOWN or document is None:
        return
    parsed = json.loads(document) if isinstance(document, str) else document
    if not isinstance(parsed, Mapping):
        raise ValueError(f"a policy document must be a JSON object, got {parsed!r}")
    for statement in _as_tuple(parsed.get("Statement")):
        yield Statement(
            sid=statement.get("Sid", ""),
            allows=statement["Effect"] == "Allow",
            actions=_element(statement, "Action"),
            resources=_element(statement, "Resource"),
            principals=tuple(_principals(statement.get("Principal"))),
            condition=statement.get("Condition", {}),
        )


def identity_statements(resource: Resource) -> Iterator[Statement]:
    """Statements of all identity-based policies of a role or an IAM policy."""
    for path in _IDENTITY_DOCUMENTS.get(resource.type, ()):
        head, _, field = path.partition(".*.")
        documents = [one.get(field) for one in resource.elements(head)] if field else [resource.get(head)]
        for document in documents:
            yield from statements(document)


def resource_statements(resource: Resource) -> Iterator[Statement]:
    """Statements of a resource-based policy or a role's trust policy."""
    return statements(resource.get(_RESOURCE_DOCUMENTS[resource.type]))


def denies_insecure_transport(document: object) -> bool:
    """Whether a policy denies every principal every action without TLS; True for an unknown policy."""
    if document is UNKNOWN:
        return True
    return any(
        not one.allows
        and "*" in one.principals
        and any(action == "*" or action.endswith(":*") for action in one.actions)
        and _is_false(one.condition.get("Bool", {}).get("aws:SecureTransport"))
        for one in statements(document)
    )


def _is_false(value: object) -> bool:
    return [str(one).lower() for one in _as_tuple(value)] == ["false"]


def _as_tuple(value: object) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _element(statement: Mapping[str, Any], name: str) -> tuple[str, ...]:
    negated = tuple(f"Not{name}:{one}" for one in _as_tuple(statement.get(f"Not{name}")))
    return (*_as_tuple(statement.get(name)), *negated)


def _principals(principal: object) -> Iterator[str]:
    if isinstance(principal, Mapping):
        for kind, values in principal.items():
            yield from ("*" if value == "*" else f"{kind}:{value}" for value in _as_tuple(values))
    else:
        yield from _as_tuple(principal)
