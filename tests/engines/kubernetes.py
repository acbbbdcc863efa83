"""A real Kubernetes control plane on loopback, one per session."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from kubernetes.dynamic import DynamicClient

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.crds import copied_crds
from infra.lifecycle.sandbox.modules import CRD_MODULES, Module
from infra.lifecycle.sandbox.programs import REMEDY, Programs, find_programs
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from platform_charts.charts.crds import CrdFolder
from tests.engines.report_table import ran, skipped

NAME = "Kubernetes API"
_GIVEN = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
"""Kind and name of what controllers create in every namespace."""

PROJECTS = {module.name: module for module in CRD_MODULES}
"""Projects with CRDs that the platform's objects use."""


class Cluster(KubernetesApi):
    """An API server whose warnings are errors."""

    def __init__(self, control_plane: ControlPlane, user: str | None = None, groups: Sequence[str] = ()) -> None:
        super().__init__(control_plane.client(user, groups))
        self._control_plane = control_plane

    def seen_by(self, user: str, group: str) -> Cluster:
        """A client that impersonates a user in a group."""
        return Cluster(self._control_plane, user, (group,))

    def existing(self, manifest: Mapping[str, Any]) -> Manifest:
        """An object that has to exist, as it is now."""
        found = self.read(manifest)
        assert found is not None, f"{manifest['kind']} {manifest['metadata']['name']} does not exist"
        return found

    def apply_all(self, manifests: Sequence[Mapping[str, Any]]) -> list[Manifest]:
        """Apply in order without a warning, once a namespace that is being removed is gone; returns the live objects."""
        self._await_absence([one for one in manifests if self._is_being_removed(one)], seconds=60)
        found = [self.apply(manifest) for manifest in manifests]
        assert self.warnings == []
        return found

    @contextmanager
    def applied(self, *manifests: Mapping[str, Any]) -> Iterator[list[Manifest]]:
        """Objects that exist while the context is open."""
        try:
            yield self.apply_all(manifests)
        finally:
            self.delete_all(manifests)

    def delete_all(self, manifests: Sequence[Mapping[str, Any]], *, seconds: float = 60) -> None:
        """Delete in reverse order, and wait until none is left.

        Raises:
            ApiError: one is still there after `seconds`; names it.
        """
        for manifest in reversed(manifests):
            self.delete(manifest)
        self._await_absence(manifests, seconds=seconds)

    def _is_being_removed(self, manifest: Mapping[str, Any]) -> bool:
        found = self.read(manifest) if manifest["kind"] == "Namespace" else None
        return found is not None and "deletionTimestamp" in found["metadata"]

    def _await_absence(self, manifests: Sequence[Mapping[str, Any]], *, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for manifest in manifests:
            while (left := self.read(manifest)) is not None:
                if time.monotonic() > deadline:
                    state = json.dumps({key: left.get(key) for key in ("kind", "metadata", "status")})
                    raise ApiError(f"still there after {seconds:.0f} s: {state}", code=409)
                time.sleep(0.05)

    def inventory(self) -> set[str]:
        """Kind, namespace and name of all objects there are, of every kind that can be listed.

        Without what the control plane creates and removes by itself: events, leases, and what every namespace gets.
        """
        kinds = [
            kind for found in DynamicClient(self.client, cache_file=f"{os.devnull}/none").resources for kind in found
        ]
        listed = [kind for kind in kinds if not kind.kind.endswith("List") and kind.preferred and "list" in kind.verbs]
        return {
            f"{kind.group_version} {kind.kind} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
            for kind in listed
            if kind.kind not in {"Event", "Lease"}
            for item in self.items(kind.group_version, kind.kind)
            if (kind.kind, item["metadata"]["name"]) not in _GIVEN
        }

    @contextmanager
    def namespace(self, name: str, *, labels: Mapping[str, str] | None = None) -> Iterator[str]:
        """A namespace that exists, with its contents, while the context is open; its controller removes it 5 s later."""
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        self.apply_all([manifest])
        try:
            self.await_(account, lambda _: True, what="created")
            yield name
        finally:
            self.delete(manifest)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A running control plane with all CRDs in the engines cache; skips without its programs."""
    programs = engine_programs()
    folder = Path(tempfile.mkdtemp(prefix="rtp-kubernetes-"))
    try:
        with ControlPlane(folder / "plane", programs=programs, crds=copied_crds(engine_environment())) as plane:
            ran(NAME)
            yield plane
    finally:
        folder.rmdir()


@pytest.fixture(scope="session")
def kubernetes_api(control_plane: ControlPlane) -> Cluster:
    """The API server, with administrator rights."""
    return Cluster(control_plane)


@pytest.fixture(scope="session")
def custom_resources(kubernetes_api: Cluster) -> Cluster:
    """The API server with the CRDs of every project; skips without them."""
    missing = [crd["metadata"]["name"] for project in PROJECTS for crd in crds(project) if not kubernetes_api.read(crd)]
    assert missing == []
    return kubernetes_api


def crds(project: str) -> tuple[Manifest, ...]:
    """The CRDs of a project at the version that `make engines` tests with; skips where it has not copied them."""
    return crds_of(PROJECTS[project])


@cache
def crds_of(module: Module) -> tuple[Manifest, ...]:
    """The CRDs of a module; skips where `make engines` has not copied them."""
    folder, name = module.crd_folder(engine_environment()), f"CRDs of {module.title} {module.version}"
    if not folder.is_dir():
        skipped(name, f"not in {folder.parent}", "make engines (needs Go)")
    ran(name)
    return CrdFolder(folder).crds()


def engine_environment() -> dict[str, str]:
    """Environment variables with the user's own cache, because the session's home is a temporary folder."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    return {"XDG_CACHE_HOME": str(home / ".cache"), **os.environ}


def engine_programs() -> Programs:
    """Find the programs of the control plane; skips without them."""
    try:
        return find_programs(engine_environment())
    except RefusedError as missing:
        skipped(NAME, str(missing).partition("\n")[0], REMEDY)
