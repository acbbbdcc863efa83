"""The pods that `expand` says KubeRay makes, beside those that its operator does make."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from infra.spec.manifest import Manifest
from platform_charts.jobs.expand import expand
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.engines.kubernetes_jobs import job, raycluster
from tests.engines.kubernetes_operators import Operated

_SECONDS = 60

_SCRIPTED = ("wait-gcs-ready", "ray-job-submitter")
"""Containers whose script `expand` has in fewer words."""

_OPEN_FILES = "${RAY_START_ULIMIT_OPEN_FILES:-65536}"
_AUTOSCALER_COMMAND = "KUBERAY_GEN_AUTOSCALER_START_CMD"

_LEFT_OUT = (
    "topology.kubernetes.io/",
    "ray.io/upgrade-strategy-recreate-hash",
    "ray.io/kuberay-version",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "kueue.x-k8s.io/",
)
"""Labels and annotations that a pod gets with its node, its owner's hash or id, or from Kueue."""
_RAY_PODS = "ray.io/is-ray-node=yes"


def test_the_operator_makes_of_a_cluster_the_pods_that_are_expected(operated: Operated) -> None:
    environment = operated.environment
    manifest = raycluster(environment, "compared", min_workers=1, max_workers=2)
    with operated.cluster.applied(manifest):
        made = _await_pods(operated, len(expand(manifest)), labels=_RAY_PODS)
        _compare(operated, made, expand(manifest))


def test_the_operator_makes_of_a_job_the_pods_that_are_expected(operated: Operated) -> None:
    request = job("compared", team=operated.environment.team, workers=8, group="a10g")
    submitted = operated.submit(request)
    try:
        # The submitter, which is made once all others are ready, comes last.
        made = _await_pods(operated, 4, labels=f"{JOB_LABEL}=compared")
        # Kueue, where it runs, has chosen the nodes meanwhile.
        admitted = operated.cluster.read(submitted)
        assert admitted is not None
        _compare(operated, made, expand(admitted))
    finally:
        operated.remove(submitted)


def _await_pods(operated: Operated, count: int, *, labels: str) -> list[Manifest]:
    deadline = time.monotonic() + _SECONDS
    while True:
        found = operated.cluster.items("v1", "Pod", namespace=operated.environment.team, labels=labels)
        if len(found) == count:
            return found
        names = [pod["metadata"]["name"] for pod in found]
        assert time.monotonic() < deadline, f"the operator made {names}, {count} pods are expected"
        time.sleep(0.2)


def _compare(operated: Operated, made: list[Manifest], expected: tuple[Manifest, ...]) -> None:
    # The server's defaults belong to both.
    wanted = [operated.cluster.create(pod, is_dry_run=True) for pod in expected]
    assert _sorted(made) == _sorted(wanted)


def _sorted(pods: list[Manifest]) -> list[dict[str, Any]]:
    return sorted(map(_shape, pods), key=lambda shape: str(shape["metadata"]["labels"]))


def _shape(pod: Manifest) -> dict[str, Any]:
    """Everything but what `expand` says it leaves out, and what a pod gets when it is put on a node."""
    shape: dict[str, Any] = json.loads(_without_chance(json.dumps({key: pod[key] for key in ("metadata", "spec")})))
    metadata, spec = shape["metadata"], shape["spec"]
    spec.pop("nodeName", None)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["env"] = {one["name"]: one for one in container.get("env", ()) if one["name"] != _AUTOSCALER_COMMAND}
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


def _without_chance(text: str) -> str:
    """Without random letters, and without what only the newer one of two operators has.

    The one that `make engines` builds is of 1.6, `expand` is of 1.7: that asks for the number of open files by a variable,
    and has the autoscaler's command in one.
    """
    text = re.sub(r"\b(compared|kube-api-access)-[a-z0-9]{5}\b", r"\1-00000", text)
    return re.sub(r"kuberay_version=v[0-9.]+", "kuberay_version=v0.0.0", text.replace(_OPEN_FILES, "65536"))
