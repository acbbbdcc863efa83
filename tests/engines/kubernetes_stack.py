"""The Kubernetes half of a stack on a control plane: a double of the Pulumi engine applies recorded graphs to the real API server.

Like the engine it creates what is new in the order of the dependencies, by server-side apply, refuses what needs a new resource that
is left out, and deletes what is gone at the end. A Helm release of an operator is the operator's process; the other charts, and AWS,
are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.kube.definitions import apply_crds
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.operators import start_kuberay, start_kueue
from infra.lifecycle.sandbox.processes import Process
from infra.preview.recording import Recording, Resource
from infra.spec.manifest import Manifest
from platform_charts.charts.crds import check_crd_upgrades
from tests.engines.kubernetes import Cluster
from tests.infra.aws.graphs import in_order

CHART = "kubernetes:helm.sh/v3:Release"
"""Type token of a Helm release."""


@dataclass(frozen=True, kw_only=True)
class StackRelease:
    """What one release of the platform makes of an environment."""

    graph: Recording
    crds: tuple[Manifest, ...]
    programs: Mapping[str, Path]

    @property
    def objects(self) -> dict[str, Manifest]:
        """The objects by URN."""
        return {one.urn: one.properties for one in self.graph.resources if _is_object(one)}


class ClusterStack:
    """A stack on a control plane."""

    def __init__(self, plane: ControlPlane, *, proxy: str) -> None:
        """An empty stack."""
        self.operators: dict[str, Process] = {}
        self.ran: list[tuple[str, ...]] = []
        self._plane = plane
        self._proxy = proxy
        self._cluster = Cluster(plane)
        self._state: dict[str, Resource] = {}

    def preview(self, release: StackRelease) -> dict[str, Any]:
        """The document of `pulumi preview --json --show-sames` before an update to a release."""
        new = {one.urn: one for one in in_order(release.graph.resources)}
        gone = [one for urn, one in self._state.items() if urn not in new]
        steps = [self._step(one) for one in new.values()]
        return {"steps": [*steps, *({"op": "delete", "urn": one.urn, "oldState": _state(one)} for one in gone)]}

    def up(self, release: StackRelease, excluded: Sequence[str] = ()) -> int:
        """`pulumi up` of all resources but these; returns its exit status."""
        self.ran.append(tuple(excluded))
        left_out = frozenset(excluded)
        included = [one for one in in_order(release.graph.resources) if one.urn not in left_out]
        missing = left_out - self._state.keys()
        for one in included:
            assert not missing.intersection({*one.dependencies, one.parent}), f"{one.urn} needs what is left out"
        changed = [one for one in included if self._step(one)["op"] != "same"]
        charts = [one for one in changed if one.type == CHART]
        for one in changed:
            if _is_object(one):
                self._cluster.apply_all([one.properties])
            elif charts and one is charts[0]:
                self._install(release, charts)
        self._state.update({one.urn: one for one in changed})
        self._delete({*(one.urn for one in release.graph.resources), *left_out})
        return 0

    def _step(self, one: Resource) -> dict[str, Any]:
        old = self._state.get(one.urn)
        op = "create" if old is None else "update" if old.properties != one.properties else "same"
        return {"op": op, "urn": one.urn, "newState": _state(one)} | ({} if old is None else {"oldState": _state(old)})

    def _install(self, release: StackRelease, charts: Sequence[Resource]) -> None:
        """CRDs, then the operators: those that change stop before the first new one starts, the worst case of an update."""
        live = (self._cluster.read(crd) for crd in release.crds)
        check_crd_upgrades([crd for crd in live if crd is not None], release.crds)
        apply_crds(self._cluster, release.crds)
        installed = {one.name: one for one in charts if one.name in release.programs}
        for name in installed.keys() & self.operators.keys():
            self.operators.pop(name).stop()
        for name, chart in installed.items():
            self.operators[name] = self._start(name, release.programs[name], chart.properties["values"])

    def _start(self, name: str, program: Path, values: Manifest) -> Process:
        if name == "kuberay-operator":
            return start_kuberay(self._plane, program, proxy=self._proxy)
        text = values["managerConfig"]["controllerManagerConfigYaml"]
        return start_kueue(self._plane, program, configuration=yaml.safe_load(text))

    def _delete(self, kept: Collection[str]) -> None:
        gone = [one for one in in_order(tuple(self._state.values())) if one.urn not in kept]
        self._cluster.delete_all([one.properties for one in gone if _is_object(one) and one.deleted_with is None])
        for one in gone:
            del self._state[one.urn]


def _is_object(one: Resource) -> bool:
    return one.type.startswith("kubernetes:") and one.type != CHART


def _state(one: Resource) -> dict[str, Any]:
    sources = one.property_dependencies
    return {
        "parent": one.parent or "",
        "inputs": one.properties,
        "dependencies": one.dependencies,
        "propertyDependencies": sources,
    }
