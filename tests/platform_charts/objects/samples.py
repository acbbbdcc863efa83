"""The objects of shipped and generated environments, and functions to query them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from platform_charts.objects.phases import ClusterFacts, platform_objects
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.infra.spec.samples import changed, dev_sections

RELEASE = load_release()
CATALOG = load_catalog()

FACTS = ClusterFacts(
    file_system_id="fs-0123456789abcdef0",
    datasets_access_point="fsap-0123456789abcdef0",
    team_access_points={"research": "fsap-1", "platform": "fsap-2", "production": "fsap-3", "smoke": "fsap-4"},
    database_host="rtp-dev-mlflow.abc.us-east-1.rds.amazonaws.com",
    database_port=5432,
    database_secret_arn="arn:aws:secretsmanager:us-east-1:111122223333:secret:rds!db-1",
    artifact_bucket="rtp-dev-artifacts-111122223333",
    registry="111122223333.dkr.ecr.us-east-1.amazonaws.com",
    account="111122223333",
    api_server_cidrs=("10.16.0.0/18", "10.16.64.0/18", "10.16.128.0/18"),
)

__all__ = ["CATALOG", "ENVIRONMENTS", "FACTS", "RELEASE", "settings_of"]


@cache
def objects_of(environment: str) -> Mapping[str, tuple[Manifest, ...]]:
    """Objects of one of `ENVIRONMENTS`, by phase."""
    return platform_objects(settings_of(environment), RELEASE, FACTS)


def all_of(environment: str) -> tuple[Manifest, ...]:
    """Objects of one of `ENVIRONMENTS`, in order of creation."""
    return tuple(one for phase in objects_of(environment).values() for one in phase)


def of_kind(objects: tuple[Manifest, ...], kind: str, *, namespace: str | None = None) -> list[Manifest]:
    """Objects of a kind, in one namespace or in all."""
    return [
        one
        for one in objects
        if one["kind"] == kind and (namespace is None or one["metadata"].get("namespace") == namespace)
    ]


def named(objects: tuple[Manifest, ...], kind: str, name: str, *, namespace: str | None = None) -> Manifest:
    """The object of that kind and name."""
    [found] = [one for one in of_kind(objects, kind, namespace=namespace) if one["metadata"]["name"] == name]
    return found


def pod_specs(objects: tuple[Manifest, ...]) -> Iterator[Manifest]:
    """The pod specs of all workloads."""
    yield from (one["spec"]["template"]["spec"] for one in objects if "template" in one.get("spec", {}))


def varied(changes: dict[str, Any]) -> StackSettings:
    """The sample environment with values at dotted paths replaced."""
    return from_mapping(changed(dev_sections(), changes), file="sample")


@st.composite
def shared_environments(draw: st.DrawFn) -> StackSettings:
    """Valid settings with arbitrary GPU groups and shares of teams."""
    types = ("g4dn.xlarge", "g5.12xlarge", "g6.12xlarge", "p4d.24xlarge", "p5.48xlarge")
    groups, left = [], {}
    for index in range(draw(st.integers(1, 3))):
        name, instance = f"group-{index}", draw(st.sampled_from(types))
        has_efa = CATALOG.find_instance(instance).efa_interfaces > 0 and draw(st.booleans())
        slices = 1 if has_efa else draw(st.integers(1, 4))
        group: dict[str, Any] = {"name": name, "instance_type": instance, "max_size": draw(st.integers(1, 6))}
        group |= {"sharing": {"time_slices": slices}}
        if has_efa:
            group |= {"efa": True, "availability_zones": ["us-east-1a"], "placement": "cluster"}
        groups.append(group)
        left[name] = group["max_size"] * CATALOG.find_instance(instance).gpus * slices
    teams = []
    for index in range(draw(st.integers(1, 4))):
        gpus = {}
        for name in draw(st.sets(st.sampled_from(sorted(left)))):
            gpus[name] = draw(st.integers(0, left[name]))
            left[name] -= gpus[name]
        teams.append({"name": f"team-{index}", "gpus": gpus, "borrow": draw(st.booleans())})
    return varied({"gpu_groups": groups, "teams": teams})
