"""A real control plane of Kubernetes on loopback, one for the session, where its programs are."""

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
from infra.lifecycle.sandbox.definitions import read_definitions
from infra.lifecycle.sandbox.programs import REMEDY, Programs, find
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from tests.engines.report_table import ran, skipped

NAME = "Kubernetes API"
CRDS = Path(__file__).resolve().parents[3] / "shared" / "crds"
"""Custom resource definitions as their projects publish them, beside the checkout; a folder for each project."""


_GIVEN = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
"""Kind and name of what controllers create in every namespace."""

PROJECTS = ("kuberay", "kueue", "prometheus-operator")
"""Projects whose kinds the platform's objects are of."""


class Cluster(KubernetesApi):
    """An API server of which every warning is an error."""

    def __init__(self, control_plane: ControlPlane, user: str | None = None, groups: Sequence[str] = ()) -> None:
        super().__init__(control_plane.client(user, groups))
        self._control_plane = control_plane

    def seen_by(self, user: str, group: str) -> Cluster:
        """The same API server as somebody else sees it: a user of that group."""
        return Cluster(self._control_plane, user, (group,))

    def apply_all(self, manifests: Sequence[Mapping[str, Any]]) -> list[Manifest]:
        """Apply in order, without a warning; returns the objects as the server has them."""
        found = [self.apply(manifest) for manifest in manifests]
        assert self.warnings == []
        return found

    @contextmanager
    def applied(self, *manifests: Mapping[str, Any]) -> Iterator[list[Manifest]]:
        """Manifests that are there for a while, and leave nothing."""
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
        """A namespace that is there for a while; what is in it goes with it."""
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        with self.applied(manifest):
            self.await_(account, lambda _: True, what="there")
            yield name


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A running control plane with the definitions that are there; skips where its programs are not."""
    programs = engine_programs()
    definitions = [one for project in PROJECTS if (CRDS / project).is_dir() for one in crds(project)]
    folder = Path(tempfile.mkdtemp(prefix="rtp-kubernetes-"))
    try:
        with ControlPlane(folder / "plane", programs=programs, definitions=definitions) as plane:
            ran(NAME)
            yield plane
    finally:
        folder.rmdir()


@pytest.fixture(scope="session")
def kubernetes_api(control_plane: ControlPlane) -> Cluster:
    """The API server, as an administrator sees it."""
    return Cluster(control_plane)


@pytest.fixture(scope="session")
def custom_resources(kubernetes_api: Cluster) -> Cluster:
    """The API server with the definitions of every project; skips where they are not."""
    missing = [
        definition for project in PROJECTS for definition in crds(project) if not kubernetes_api.read(definition)
    ]
    assert missing == []
    return kubernetes_api


@cache
def crds(project: str) -> tuple[Manifest, ...]:
    """The custom resource definitions of a project; skips where they are not."""
    folder = CRDS / project
    if not folder.is_dir():
        skipped(f"CRDs of {project}", "not beside the checkout", f"copy those of the pinned version to {folder}")
    return tuple(read_definitions(folder))


def engine_environment() -> dict[str, str]:
    """The environment, with the user's own cache: the home of the session is a temporary folder."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    return {"XDG_CACHE_HOME": str(home / ".cache"), **os.environ}


def engine_programs() -> Programs:
    """The programs of the control plane; skips where they are not."""
    try:
        return find(engine_environment())
    except RefusedError as missing:
        skipped(NAME, str(missing).partition("\n")[0], REMEDY)
