"""Recorded graphs of the shipped environments and of variations, and a small vocabulary to speak of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import yaml

from infra.recording import Recording, Resource, record
from infra.settings import StackSettings, from_mapping, load, render_test_environment
from infra.settings.loading import sections_of
from tests.infra.leaf.samples import SHIPPED, changed, dev_sections

ENVIRONMENTS = (*SHIPPED, "test")
"""The shipped environments, and a disposable one made from the template."""

ACCOUNT = "111122223333"
RESERVED = {"kind": "reservation", "id": "cr-0123456789abcdef0", "availability_zone": "us-east-1a"}
BLOCK = {
    "kind": "capacity_block",
    "id": "cr-0123456789abcdef1",
    "availability_zone": "us-east-1a",
    "ends": "2030-01-31T11:30:00Z",
}


@cache
def settings_of(environment: str) -> StackSettings:
    """Settings of one of `ENVIRONMENTS`."""
    if environment != "test":
        return load(environment)
    text = render_test_environment(
        name="test-4711",
        owner="ops@example.com",
        account=ACCOUNT,
        expires=datetime(2030, 1, 31, tzinfo=UTC),
        budget_usd=50,
    )
    return from_mapping(sections_of(yaml.safe_load(text), file="rendered"), file="rendered")


@cache
def graph(environment: str) -> Recording:
    """The graph of one of `ENVIRONMENTS`."""
    return record(settings_of(environment))


@cache
def preview(environment: str) -> Recording:
    """The graph of one of `ENVIRONMENTS` while nothing exists."""
    return record(settings_of(environment), is_preview=True)


def varied(changes: dict[str, Any]) -> Recording:
    """The graph of the sample environment with values at dotted paths replaced."""
    return record(from_mapping(changed(dev_sections(), changes), file="sample"))


@cache
def with_group(capacity: str = "on_demand", *, placement: str = "none", efa: bool = False) -> Recording:
    """The sample environment whose group h100 has this capacity."""
    kinds: dict[str, Any] = {"reservation": RESERVED, "capacity_block": BLOCK, "spot": {"kind": "spot"}}
    group = {"gpu_groups.1.capacity": kinds.get(capacity, {"kind": "on_demand"})}
    return varied({**group, "gpu_groups.1.placement": placement, "gpu_groups.1.efa": efa})


def tags_of(recording: Recording) -> dict[str, str]:
    """The provider's default tags."""
    provider = recording.find("pulumi:providers:aws", "aws").properties
    tags: dict[str, str] = json.loads(provider["defaultTags"])["tags"]
    return tags


def aws_resources(recording: Recording) -> Iterator[Resource]:
    """Everything that AWS makes."""
    return (one for one in recording.resources if one.type.startswith("aws:"))


def ancestors(recording: Recording, resource: Resource) -> list[str]:
    """Types of everything the resource lies in, the nearest first."""
    by_urn = {one.urn: one for one in recording.resources}
    found, parent = [], resource.parent
    while parent is not None:
        found.append(by_urn[parent].type)
        parent = by_urn[parent].parent
    return found


def waits_for(recording: Recording, later: Resource, earlier: Resource) -> bool:
    """Whether `later` is made after `earlier`, and so is deleted before it, directly or through others."""
    by_urn = {one.urn: one for one in recording.resources}
    seen, open_ = set[str](), [later.urn]
    while open_:
        for urn in by_urn[open_.pop()].dependencies:
            if urn not in seen:
                seen.add(urn)
                open_.append(urn)
    return earlier.urn in seen
