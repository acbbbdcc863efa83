"""A cluster for the real Pulumi engine: a control plane with an environment's fake nodes, whose pods only seem to run.

What real pods would do is done here: Jobs of the platform end, and the operators run as processes while their Deployments exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError, ConnectionLostError
from infra.lifecycle.sandbox import kueue_admission
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.modules import KUBERAY, KUEUE, Module
from infra.lifecycle.sandbox.nodes import fake_nodes
from infra.lifecycle.sandbox.operators import start_kuberay, start_kueue
from infra.lifecycle.sandbox.processes import Process
from infra.lifecycle.sandbox.programs import find_operator
from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.settings import StackSettings
from tests.engines.kubernetes import engine_environment, engine_programs

_ENDS = "ray-train-platform/ends"
_POLL_SECONDS = 0.5
_ADMISSION = "admissionregistration.k8s.io/v1"
_WEBHOOKS = tuple(
    {"apiVersion": _ADMISSION, "kind": f"{kind}WebhookConfiguration", "metadata": {"name": name}}
    for kind, name in (
        ("Mutating", "kueue-mutating-webhook-configuration"),
        ("Validating", "kueue-validating-webhook-configuration"),
    )
)

_WEBHOOK_SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": kueue_admission.SERVICE, "namespace": "kueue-system"},
}
_QUEUE_POSITIONS = tuple(
    {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.visibility.kueue.x-k8s.io"},
    }
    for version in ("v1beta1", "v1beta2")
)
REPLACED: Sequence[Manifest] = (*_WEBHOOKS, _WEBHOOK_SERVICE, *_QUEUE_POSITIONS)
"""Objects of Kueue's chart that are deleted, or are others than the chart's, while Kueue runs as a process."""


class Follower(threading.Thread):
    """Does what the platform's pods would do, until stopped."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self._plane = plane
        self._api = KubernetesApi(plane.client())
        self._ended = threading.Event()
        self._operators: dict[str, Process] = {}

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Look again and again; objects come and go meanwhile."""
        while not self._ended.wait(_POLL_SECONDS):
            with suppress(ApiError, ConnectionLostError):
                self._end_jobs()
                self._follow(KUBERAY, "kuberay-system", "kuberay-operator", self._start_kuberay)
                self._follow(KUEUE, "kueue-system", "kueue-controller-manager", self._start_kueue)

    def _end_jobs(self) -> None:
        for pod in self._api.items("v1", "Pod"):
            metadata = pod["metadata"]
            is_of_job = any(owner["kind"] == "Job" for owner in metadata.get("ownerReferences", ()))
            if is_of_job and pod["status"].get("phase") == "Running" and _ENDS not in metadata.get("annotations", {}):
                identity = {"name": metadata["name"], "namespace": metadata["namespace"]}
                changed = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {**identity, "annotations": {_ENDS: "Succeeded"}},
                }
                self._api.apply(changed, manager="fake-job")

    def _follow(self, module: Module, namespace: str, deployment: str, start: Callable[[Path], Process | None]) -> None:
        identity = {"name": deployment, "namespace": namespace}
        is_there = self._api.read({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": identity}) is not None
        program = find_operator(module, engine_environment())
        if is_there and module.name not in self._operators and program is not None and (started := start(program)):
            self._operators[module.name] = started
        if not is_there and module.name in self._operators:
            self._operators.pop(module.name).stop()
            if module is KUEUE:
                self._delete(*_WEBHOOKS)

    def _start_kuberay(self, program: Path) -> Process:
        return start_kuberay(self._plane, program)

    def _start_kueue(self, program: Path) -> Process | None:
        """Kueue in place of the chart's pods, with webhooks that lead to this machine."""
        if any(self._api.read(one) is None for one in _WEBHOOKS):
            return None
        self._delete(*_WEBHOOKS, _WEBHOOK_SERVICE)
        started = start_kueue(self._plane, program)
        # Nothing serves the API of queue positions, and an API that nothing serves keeps every namespace from deletion.
        self._delete(*_QUEUE_POSITIONS)
        return started

    def _delete(self, *manifests: Manifest) -> None:
        for manifest in manifests:
            self._api.delete(manifest)


@contextmanager
def platform_cluster(folder: Path, settings: StackSettings, *, crds: Iterable[Manifest]) -> Iterator[ControlPlane]:
    """A control plane with the environment's nodes, on which the platform can be installed."""
    with ControlPlane(folder, programs=engine_programs(), crds=crds) as plane:
        api = KubernetesApi(plane.client())
        for node in fake_nodes(settings, catalog=load_catalog()):
            api.create(node)
        follower = Follower(plane)
        follower.start()
        try:
            yield plane
        finally:
            follower.stop()
