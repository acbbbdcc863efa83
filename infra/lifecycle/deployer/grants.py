"""What the provider may do to resources of one type: the vocabulary of the permission tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from infra.preview.recording import Resource
from infra.spec.names import STACK_TAG

_AUTONAME = "-???????"
"""What Pulumi appends to the logical name of a resource without a physical one: seven hexadecimal digits."""

_NAMES = ("bucket", "identifier", "nodeGroupName", "name")
"""Properties that are the physical name, if given."""


class Scope(Enum):
    """How a grant is limited, beyond its ARNs."""

    REGION = "calls to the environment's region; for actions without resource-level permissions"
    NEW = "requests that tag the new resource with the environment's stack tag, and that is no other environment's"
    OURS = "resources that have the environment's stack tag"
    CLUSTER = "what EKS has made for the environment's cluster, and tagged with its name"
    ADOPTED = "resources that have the environment's stack tag or none, which EC2 makes with the VPC"
    NAMED = "the ARNs alone: they contain the environment's physical names"


def tagged_new(stack: str) -> dict[str, Mapping[str, str]]:
    """The condition of `Scope.NEW`, for a stack tag.

    A tag can also be put on what exists. Not on what another environment has, which would adopt it.
    """
    return {
        "StringEquals": {f"aws:RequestTag/{STACK_TAG}": stack},
        "StringEqualsIfExists": {f"aws:ResourceTag/{STACK_TAG}": stack},
    }


@dataclass(frozen=True, kw_only=True)
class Grant:
    """Actions with the same limits.

    Attributes:
        scope: how they are limited.
        actions: IAM actions, without wildcards.
        resources: templates of ARNs; `{region}`, `{account}`, `{cluster}` and `{prefix}` are the environment's, `{name}` is the
            physical name of each resource of the type.
        names_of: type whose resources give `{name}`; empty for the row's own.
    """

    scope: Scope
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    names_of: str = ""


def actions(service: str, names: str) -> tuple[str, ...]:
    """IAM actions of a service: `actions("kms", "CreateAlias DeleteAlias")`."""
    return tuple(f"{service}:{name}" for name in names.split())


def read(service: str, names: str) -> Grant:
    """Reads that have no resource-level permissions."""
    return Grant(scope=Scope.REGION, actions=actions(service, names))


def named(service: str, names: str, *resources: str, names_of: str = "") -> Grant:
    """Actions on resources whose names are known before they exist."""
    return Grant(scope=Scope.NAMED, actions=actions(service, names), resources=resources, names_of=names_of)


def physical_name(resource: Resource) -> str:
    """Name of a resource in AWS; a pattern where Pulumi invents the end of it."""
    given = (resource.properties.get(key) for key in _NAMES)
    return next((name for name in given if isinstance(name, str)), f"{resource.name}{_AUTONAME}")


Table = Mapping[str, tuple[Grant, ...]]
"""Grants by type of resource."""
