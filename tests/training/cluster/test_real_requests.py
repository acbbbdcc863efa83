"""Requests reach a pod that runs, by a real kubelet."""

from __future__ import annotations

import pytest

from infra.spec.cluster_names import PROFILE_REQUEST, REQUESTS_VARIABLE
from infra.spec.manifest import Manifest
from platform_charts.jobs.requests import requests_map, with_requests
from tests.engines.real_nodes import Pods
from tests.training.cluster.team_cluster import wait_until
from training.profiling.request import ProfileRequest

_JOB = "first"
_SECONDS = 240.0
"""The kubelet looks at a pod's mounts every 60 to 90 s."""


def worker(pods: Pods) -> Manifest:
    """A pod with what a job's worker mounts."""
    made = pods.pod("worker", "exec busybox sleep 3600", node="system", volumes=[])
    made["spec"]["containers"][0] |= {"env": [], "volumeMounts": []}
    return with_requests(made, _JOB)


def request_map(request: ProfileRequest) -> Manifest:
    """The ConfigMap of a request, whose owner is left out: there is no job."""
    made = requests_map(_JOB, namespace="default", labels={}, owner={}, files={PROFILE_REQUEST: request.dump()})
    del made["metadata"]["ownerReferences"]
    return made


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_pod_that_runs_sees_each_request_and_its_withdrawal(real_nodes: Pods) -> None:
    pod = worker(real_nodes)
    show = f"busybox cat ${REQUESTS_VARIABLE}/{PROFILE_REQUEST}"

    def await_text(text: str) -> None:
        wait_until(lambda: text in real_nodes.run(pod, "bash", "-c", show), seconds=_SECONDS)

    with real_nodes.applied(pod):
        real_nodes.await_phase(pod, "Running")
        for request in (ProfileRequest(steps=10), ProfileRequest(steps=20)):
            await_text("No such file")
            with real_nodes.applied(request_map(request)):
                await_text(request.dump())
        await_text("No such file")
