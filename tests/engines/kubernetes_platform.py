"""The platform's objects on a real API server, one environment at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import pytest

from infra.lifecycle.sandbox.nodes import fake_nodes
from infra.lifecycle.sandbox.recorded import Recorded, recorded
from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.names import team_group
from infra.spec.release import load_release
from infra.spec.settings import StackSettings
from platform_charts.jobs.request import Target
from platform_charts.objects.phases import platform_objects
from tests.engines.kubernetes import Cluster
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of

_CORE = {"dev", "prod"}
"""Environments of the core: to deploy one takes ten seconds."""


class Environment(NamedTuple):
    """An environment whose objects are on the API server."""

    cluster: Cluster
    settings: StackSettings
    stack: Recorded
    manifests: tuple[Manifest, ...]

    @property
    def team(self) -> str:
        """Name of the first team and of its namespace."""
        return self.settings.teams[0].name

    def member(self, team: str) -> Cluster:
        """The API server with the rights of a team member."""
        return self.cluster.seen_by(f"{team}-member", team_group(team))

    @property
    def target(self) -> Target:
        """The target that jobs are rendered for."""
        return Target(outputs=self.stack.outputs, release=load_release(), catalog=load_catalog())


def drifts(cluster: Cluster, manifest: Manifest) -> bool:
    """Whether applying an object again changes it.

    Controllers may write to the object between the read and the apply; a drift of ours shows on every attempt.
    """
    return all(_version(cluster.read(manifest)) != _version(cluster.apply(manifest)) for _ in range(5))


def _version(found: Manifest | None) -> str:
    assert found is not None, "the object was applied before"
    return str(found["metadata"]["resourceVersion"])


class Deployments:
    """Deploys environments one at a time, because their namespaces have the same names."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = cluster.inventory()
        self._name = ""
        self._current: Environment | None = None
        self._nodes: tuple[Manifest, ...] = ()

    def up(self, name: str) -> Environment:
        """Deploy a shipped environment with its nodes and objects; deletes the one deployed before."""
        if self._current is not None and self._name == name:
            return self._current
        return self.deploy(name, settings_of(name), _stack(name))

    def deploy(self, name: str, settings: StackSettings, stack: Recorded) -> Environment:
        """Deploy an environment of any settings; deletes the one deployed before."""
        self.down()
        phases: Mapping[str, tuple[Manifest, ...]] = platform_objects(settings, load_release(), stack.facts)
        manifests = tuple(manifest for phase in phases.values() for manifest in phase)
        self._nodes = fake_nodes(settings, catalog=load_catalog())
        self._name, self._current = name, Environment(self._cluster, settings, stack, manifests)
        for node in self._nodes:
            self._cluster.create(node)
        self._cluster.apply_all(manifests)
        await_quotas(self._cluster, manifests)
        return self._current

    def down(self) -> set[str]:
        """Delete the environment; returns the paths of the objects that remain."""
        if self._current is not None:
            self._cluster.delete_all((*self._nodes, *self._current.manifests))
            self._current = None
        return self._left()

    @contextmanager
    def away(self) -> Iterator[None]:
        """No environment while the context is open; the one that was deployed is there again afterwards."""
        had = self._current is not None
        self.down()
        try:
            yield
        finally:
            if had:
                self.up_again()

    def up_again(self) -> None:
        """Deploy the environment that was deployed last, and was deleted: for tests that follow, whose fixture has it."""
        self.up(self._name)

    def _left(self) -> set[str]:
        """New objects that remain; dependents such as endpoints are deleted shortly after their owners."""
        deadline = time.monotonic() + 60
        while left := self._cluster.inventory() - self._before:
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        return left


def await_quotas(cluster: Cluster, manifests: Iterable[Manifest]) -> None:
    """Wait for the usage of every ResourceQuota: without it, a quota refuses everything that it limits."""
    for manifest in manifests:
        if manifest["kind"] == "ResourceQuota":
            cluster.await_(manifest, _is_counted, what="calculated")


def _is_counted(quota: Manifest) -> bool:
    return bool(quota.get("status", {}).get("used", {}).keys() == quota["spec"]["hard"].keys())


@pytest.fixture(scope="session")
def deployments(custom_resources: Cluster) -> Iterator[Deployments]:
    """Deployments on the API server; the last one is deleted at the end of the session."""
    found = Deployments(custom_resources)
    yield found
    found.down()


@pytest.fixture(
    scope="session",
    params=[one if one in _CORE else pytest.param(one, marks=pytest.mark.extended) for one in ENVIRONMENTS],
)
def environment(request: pytest.FixtureRequest, deployments: Deployments) -> Environment:
    """Each environment in turn; pytest runs all tests of one before those of the next."""
    return deployments.up(request.param)


in_dev = pytest.mark.parametrize("environment", ["dev"], indirect=True)
"""Run a test in dev only, which has g4dn and g5 nodes."""

with_lustre = pytest.mark.parametrize(
    "environment", [pytest.param("lustre", marks=pytest.mark.extended)], indirect=True
)
"""Run a test in the sample environment with FSx for Lustre only."""

in_prod = pytest.mark.parametrize("environment", ["prod"], indirect=True)
"""Run a test in prod only, which has g6, p4d and p5 nodes."""


@cache
def _stack(name: str) -> Recorded:
    return recorded(settings_of(name))
