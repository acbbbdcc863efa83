"""The pods that `expand` says KubeRay makes, beside those that its operator does make."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.sandbox.api import Object
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.processes import Process
from platform_charts.jobs.expand import expand
from platform_charts.manifest import Manifest
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import job, node_type, raycluster, rayjob
from tests.engines.kubernetes_platform import Environment, in_dev
from tests.engines.report_table import ran, skipped

_NAME = "KubeRay operator"
_VARIABLE = "KUBERAY_OPERATOR"


@pytest.fixture
def operator(control_plane: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """A running operator; skips where $KUBERAY_OPERATOR names none."""
    program = os.environ.get(_VARIABLE)
    if program is None:
        skipped(
            _NAME, f"{_VARIABLE} names no program", f"set {_VARIABLE} to KubeRay's manager of the release's version"
        )
    arguments = [
        f"--kubeconfig={control_plane.kubeconfig}",
        "--enable-leader-election=false",
        "--metrics-addr=0",
        "--health-probe-bind-address=0",
    ]
    process = Process([program, *arguments], log=tmp_path / "operator.log")
    try:
        ran(_NAME)
        yield
    finally:
        process.stop()


@in_dev
@pytest.mark.usefixtures("operator")
def test_the_operator_makes_of_a_cluster_the_pods_that_are_expected(environment: Environment) -> None:
    _compare(environment, raycluster(environment, "compared", min_workers=1, max_workers=2))


@in_dev
@pytest.mark.usefixtures("operator")
def test_the_operator_makes_of_a_job_the_ray_pods_that_are_expected(environment: Environment) -> None:
    # The submitter comes once Ray answers, which needs a container that runs.
    _compare(environment, rayjob(environment, job("compared", team=environment.team, workers=8, group="a10g")))


def _compare(environment: Environment, manifest: Manifest) -> None:
    expected = [pod for pod in expand(manifest) if node_type(pod) != "submitter"]
    with environment.cluster.applied(manifest):
        made = _pods(environment, count=len(expected))
        # The server's defaults belong to both.
        wanted = [environment.cluster.create(pod, is_dry_run=True) for pod in expected]
        assert _sorted(made) == _sorted(wanted)


def _pods(environment: Environment, *, count: int) -> list[Object]:
    cluster: Cluster = environment.cluster
    deadline = time.monotonic() + 60
    while True:
        found = cluster.items("v1", "Pod", namespace=environment.team, labels="ray.io/is-ray-node=yes")
        if len(found) == count:
            return found
        assert time.monotonic() < deadline, f"the operator made {len(found)} pods, {count} are expected"
        time.sleep(0.1)


def _sorted(pods: list[Object]) -> list[dict[str, Any]]:
    return sorted(map(_shape, pods), key=str)


def _shape(pod: Object) -> dict[str, Any]:
    """What has to be equal: everything that security, placement and the trainer depend on, without random names."""
    spec = pod["spec"]
    kept = ("nodeSelector", "tolerations", "affinity", "securityContext", "serviceAccountName", "priorityClassName")
    return {
        "labels": {key: _without_hash(value) for key, value in pod["metadata"]["labels"].items()},
        **{key: spec.get(key) for key in (*kept, "restartPolicy", "terminationGracePeriodSeconds")},
        "volumes": sorted(volume["name"] for volume in spec["volumes"]),
        "initContainers": [_container(one) for one in spec.get("initContainers", [])],
        "containers": [_container(one) for one in spec["containers"]],
    }


def _container(container: Object) -> dict[str, Any]:
    kept = ("name", "image", "resources", "securityContext", "ports", "lifecycle", "envFrom")
    return {
        **{key: container.get(key) for key in kept},
        "env": sorted(variable["name"] for variable in container.get("env", [])),
        "mounts": sorted((mount["name"], mount["mountPath"]) for mount in container["volumeMounts"]),
    }


def _without_hash(value: str) -> str:
    return re.sub(r"^(compared)-[a-z0-9]{5}\b", r"\1", value)
