"""Recorded graphs of the shipped environments and of variations, and functions to query them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from infra.preview.recording import Recording, Resource, record
from infra.spec.section import read_document
from infra.spec.settings import StackSettings, from_mapping, load_environment, render_test_environment
from tests.infra.spec.samples import SHIPPED, changed, dev_sections, prod_sections

ENVIRONMENTS = (*SHIPPED, "test")
"""The shipped environments, and a test environment from the template."""

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
EXISTING = ("existing-vpc", "existing-cluster")
"""The examples of the documentation that use a VPC, or a VPC and a cluster, which exist."""

ACCOUNT = "111122223333"
RESERVED = "cr-00000000000000001"
RESERVED_EFA = "cr-00000000000000002"
RESERVED_PLACED = "cr-00000000000000003"
BLOCK = "cr-00000000000000004"
BLOCK_EFA = "cr-00000000000000005"
ADMIN = "arn:aws:iam::111122223333:role/admin"
RESEARCHER = "arn:aws:iam::111122223333:role/teams/researcher"


@cache
def settings_of(environment: str) -> StackSettings:
    """Settings of one of `ENVIRONMENTS` or `EXISTING`, or of the sample environment with FSx for Lustre, `lustre`."""
    if environment == "lustre":
        return _with_lustre("dev")
    if environment in EXISTING:
        document = read_document(EXAMPLES / f"{environment}.yaml")
        return from_mapping(document.value, file=f"{environment}.yaml")
    if environment != "test":
        return load_environment(environment)
    text = render_test_environment(
        name="test-4711",
        owner="ops@example.com",
        account=ACCOUNT,
        purpose="cluster-test",
        expires=datetime(2030, 1, 31, tzinfo=UTC),
        budget_usd=50,
    )
    return from_mapping(yaml.safe_load(text), file="rendered")


@cache
def graph(environment: str) -> Recording:
    """The graph of one of the environments of `settings_of`."""
    return record(settings_of(environment))


def in_order(resources: Sequence[Resource]) -> list[Resource]:
    """Dependencies and parents first, as the engine creates them."""
    known = {one.urn: one for one in resources}
    needs = {one.urn: [urn for urn in (*one.dependencies, one.parent or "") if urn in known] for one in resources}
    order = TopologicalSorter(needs)
    return [known[urn] for urn in order.static_order()]


@cache
def preview(environment: str) -> Recording:
    """The preview graph of one of `ENVIRONMENTS`, before anything exists."""
    return record(settings_of(environment), is_preview=True)


@cache
def sample() -> Recording:
    return varied({})


def varied(changes: dict[str, Any]) -> Recording:
    """The graph of the sample environment with values at dotted paths replaced."""
    return record(from_mapping(changed(dev_sections(), changes), file="sample"))


@cache
def unusual() -> Recording:
    """An environment with no default values, and a group for every kind of capacity."""
    return varied(
        {
            "environment.name": "a" * 20,
            "network.pods_per_node": 40,
            "network.interface_endpoints": ["sts"],
            "network.peered_cidrs": ["10.99.0.0/16"],
            "cluster.support": "extended",
            "cluster.client_cidrs": ["10.99.1.0/24"],
            "cluster.client_security_groups": ["444455556666/sg-0123456789abcdef0"],
            "storage": {"efs_uid": 1234, "infrequent_access_days": None, "dataset_sources": ["corpus"]},
            "database": {"engine_version": "16"},
            "registry": {"pull_through": ["quay.io", "registry.k8s.io", "public.ecr.aws"]},
            "teams.0.roles": [RESEARCHER, ADMIN],
            "teams.0.gpus": {},
            "gpu_groups": [
                _group("on-demand", {"kind": "on_demand"}),
                _group("on-demand-efa", {"kind": "on_demand"}, efa=True),
                _group("on-demand-placed", {"kind": "on_demand"}, placement="cluster"),
                _group("no-nvme", {"kind": "on_demand"}, local_nvme=False),
                _group("spot", {"kind": "spot"}),
                _group("spot-efa", {"kind": "spot", "allow_efa": True}, efa=True),
                _group("reservation", _reserved(RESERVED)),
                _group("reservation-efa", _reserved(RESERVED_EFA), efa=True),
                _group("reservation-placed", _reserved(RESERVED_PLACED, placement_group="theirs"), placement="cluster"),
                _group("block", _block(BLOCK)),
                _group("block-efa", _block(BLOCK_EFA), efa=True),
            ],
        }
    )


def with_lustre(kind: str) -> Recording:
    """The sample environment, of a kind, with an FSx for Lustre file system."""
    return record(_with_lustre(kind))


def _with_lustre(kind: str) -> StackSettings:
    lustre = {"source": "s3://corpus/imagenet", "availability_zone": "us-east-1b", "size_gib": 2400}
    changes = {"environment.kind": kind, "storage": {"lustre": {**lustre, "tier": "persistent-250"}}}
    sections = prod_sections() if kind == "prod" else dev_sections()
    return from_mapping(changed(sections, changes), file="sample")


def _group(name: str, capacity: dict[str, Any], **options: object) -> dict[str, Any]:
    zone = {"instance_type": "p5.48xlarge", "max_size": 2, "availability_zones": ["us-east-1a"]}
    return {"name": name, "capacity": capacity, **zone, **options}


def _reserved(id_: str, **options: str) -> dict[str, Any]:
    return {"kind": "reservation", "id": id_, "availability_zone": "us-east-1a", **options}


def _block(id_: str) -> dict[str, Any]:
    ends = "2030-01-31T11:30:00Z"
    return {"kind": "capacity_block", "id": id_, "availability_zone": "us-east-1a", "ends": ends}


def tags_of(recording: Recording) -> dict[str, str]:
    provider = recording.find("pulumi:providers:aws", "aws").properties
    tags: dict[str, str] = json.loads(provider["defaultTags"])["tags"]
    return tags


def aws_resources(recording: Recording) -> Iterator[Resource]:
    return (one for one in recording.resources if one.type.startswith("aws:"))


def dependencies_of(recording: Recording, later: Resource) -> set[str]:
    """URNs of what a resource depends on, directly or transitively; a resource also depends on its parent."""
    by_urn = {one.urn: one for one in recording.resources}
    seen, open_ = set[str](), [later.urn]
    while open_:
        one = by_urn[open_.pop()]
        found = {*one.dependencies, *filter(None, [one.parent])} - seen
        seen |= found
        open_ += found
    return seen


def depends_on(recording: Recording, later: Resource, earlier: Resource) -> bool:
    return earlier.urn in dependencies_of(recording, later)
