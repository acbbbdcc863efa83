"""The pods that `expand` predicts, compared with those that the KubeRay operator creates."""

from __future__ import annotations

import json
import re
from typing import Any

from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest
from platform_charts.jobs.code import PackedCode
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.engines.kubernetes_jobs import job
from tests.engines.kubernetes_operators import Operated
from tests.kuberay.expand import expand
from tests.waiting import wait_until

_SECONDS = 60

_SCRIPTED = ("wait-gcs-ready", "ray-job-submitter")
"""Containers whose script `expand` shortens."""

_LEFT_OUT = (
    "topology.kubernetes.io/",
    "ray.io/upgrade-strategy-recreate-hash",
    "ray.io/kuberay-version",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "kueue.x-k8s.io/",
)
"""Labels and annotations from the node, the owner's hash or id, or Kueue."""


def test_the_operator_creates_the_expected_pods_of_a_job(operated: Operated) -> None:
    code = PackedCode(identity="{}", data=b"archive")
    request = job("compared", team=operated.environment.team, workers=8, group="a10g", code=code)
    submitted = operated.submit(request)
    try:
        # The submitter comes last, when all other pods are ready.
        made = _await_pods(operated, 4, labels=f"{JOB_LABEL}=compared")
        # Kueue, if it runs, has added node selectors by now.
        admitted = operated.cluster.read(submitted)
        assert admitted is not None
        _compare(operated, made, expand(admitted))
    finally:
        operated.remove(submitted)


def test_kueue_stores_queues_as_we_write_them(queued: Operated) -> None:
    """Its webhook writes what is created anew but not what is updated; a preview would take the difference for a change."""
    written = [one for one in queued.environment.manifests if one["apiVersion"] == KUEUE_API and "spec" in one]
    stored = [queued.cluster.create(_renamed(one), is_dry_run=True)["spec"] for one in written]
    picked = [{key: spec[key] for key in one["spec"]} for one, spec in zip(written, stored, strict=True)]
    assert {one["kind"] for one in written} == {"ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue"}
    assert picked == [one["spec"] for one in written]


def _renamed(manifest: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "name": "another"}}


def _await_pods(operated: Operated, count: int, *, labels: str) -> list[Manifest]:
    def found() -> list[Manifest]:
        return operated.cluster.items("v1", "Pod", namespace=operated.environment.team, labels=labels)

    wait_until(lambda: len(found()) == count, seconds=_SECONDS)
    return found()


def _compare(operated: Operated, made: list[Manifest], expected: tuple[Manifest, ...]) -> None:
    # A dry run adds the API server's defaults to the expected pods.
    wanted = [operated.cluster.create(pod, is_dry_run=True) for pod in expected]
    assert _sorted(made) == _sorted(wanted)


def _sorted(pods: list[Manifest]) -> list[dict[str, Any]]:
    return sorted(map(_shape, pods), key=lambda shape: str(shape["metadata"]["labels"]))


def _shape(pod: Manifest) -> dict[str, Any]:
    """A pod without the parts that `expand` leaves out and without the result of scheduling."""
    shape: dict[str, Any] = json.loads(_normalized(json.dumps({key: pod[key] for key in ("metadata", "spec")})))
    metadata, spec = shape["metadata"], shape["spec"]
    spec.pop("nodeName", None)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["env"] = {one["name"]: one for one in container.get("env", ())}
        if container["name"] in _SCRIPTED:
            del container["args"]
    return {
        "metadata": {
            "labels": {key: value for key, value in metadata["labels"].items() if not key.startswith(_LEFT_OUT)},
            "annotations": {
                key: value for key, value in metadata.get("annotations", {}).items() if not key.startswith(_LEFT_OUT)
            },
        },
        "spec": spec,
    }


def _normalized(text: str) -> str:
    """Replace random suffixes."""
    return re.sub(r"\b(compared|kube-api-access)-[a-z0-9]{5}\b", r"\1-00000", text)
