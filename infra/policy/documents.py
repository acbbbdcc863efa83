"""IAM policy documents as data: their statements, whatever of JSON's short forms they are written in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Subject

_DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    tokens.ROLE: ("inlinePolicies.*.policy",),
    tokens.ROLE_POLICY: ("policy",),
    tokens.IAM_POLICY: ("policy",),
}
"""Where the permissions of identities stand, by type; `*` is every element of a list."""

_RESOURCE_DOCUMENTS: Mapping[str, str] = {
    tokens.BUCKET_POLICY: "policy",
    tokens.FILE_SYSTEM_POLICY: "policy",
    tokens.KEY: "policy",
    tokens.ROLE: "assumeRolePolicy",
    "aws:ecr/repositoryPolicy:RepositoryPolicy": "policy",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "policy",
}
"""Where a resource says who may use it, by type."""

RESOURCE_DOCUMENT_TYPES = tuple(_RESOURCE_DOCUMENTS)
IDENTITY_DOCUMENT_TYPES = tuple(_DOCUMENTS)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement; every element a tuple, whether it was written as text or as a list.

    Attributes:
        sid: its name, or an empty text.
        allows: Allow, not Deny.
        actions: Action, or `NotAction:`-prefixed elements of NotAction.
        resources: Resource, or `NotResource:`-prefixed elements of NotResource.
        principals: Principal as `type:value`; `*` for everybody.
        condition: operator, then key, then values.
    """

    sid: str
    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    principals: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]]

    @property
    def condition_keys(self) -> frozenset[str]:
        """Keys that the condition looks at, in lower case as IAM compares them."""
        return frozenset(key.lower() for keys in self.condition.values() for key in keys)


def statements(document: object) -> Iterator[Statement]:
    """Statements of a policy document; none while the document is unknown or absent.

    Raises:
        ValueError: the document is no JSON object.
    """
    if document is UNKNOWN or document is None:
        return
    parsed = json.loads(document) if isinstance(document, str) else document
    if not isinstance(parsed, Mapping):
        raise ValueError(f"a policy document is a JSON object, got {parsed!r}")
    for statement in _several(parsed.get("Statement")):
        yield Statement(
            sid=statement.get("Sid", ""),
            allows=statement["Effect"] == "Allow",
            actions=_element(statement, "Action"),
            resources=_element(statement, "Resource"),
            principals=tuple(_principals(statement.get("Principal"))),
            condition=statement.get("Condition", {}),
        )


def identity_statements(subject: Subject) -> Iterator[Statement]:
    """What a role or an IAM policy permits, in all documents it carries."""
    for path in _DOCUMENTS.get(subject.type, ()):
        head, _, field = path.partition(".*.")
        documents = [one.get(field) for one in subject.each(head)] if field else [subject.get(head)]
        for document in documents:
            yield from statements(document)


def resource_statements(subject: Subject) -> Iterator[Statement]:
    """Who may use a resource, or assume a role."""
    return statements(subject.get(_RESOURCE_DOCUMENTS[subject.type]))


def denies_plain_transport(document: object) -> bool:
    """Whether a resource's policy denies everybody everything without TLS, or is unknown yet."""
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
    return [str(one).lower() for one in _several(value)] == ["false"]


def _several(value: object) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _element(statement: Mapping[str, Any], name: str) -> tuple[str, ...]:
    negated = tuple(f"Not{name}:{one}" for one in _several(statement.get(f"Not{name}")))
    return (*_several(statement.get(name)), *negated)


def _principals(principal: object) -> Iterator[str]:
    if isinstance(principal, Mapping):
        for kind, values in principal.items():
            yield from ("*" if value == "*" else f"{kind}:{value}" for value in _several(values))
    else:
        yield from _several(principal)
