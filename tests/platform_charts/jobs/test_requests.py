"""Requests to a job that runs: what mounts them."""

from __future__ import annotations

import pytest

from infra.spec.cluster_names import REQUESTS_VARIABLE
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from platform_charts.jobs.requests import REQUESTS_PATH, requests_map, takes_requests
from tests.platform_charts.jobs.targets import job, rendered, search_job, target_of, variables, worker_of

PROD = target_of("prod")
TRAINING = rendered(job(group="a100"), PROD)


def volumes_of(pod: Manifest) -> dict[str, Manifest]:
    return {volume["name"]: volume for volume in pod["volumes"]}


def test_the_workers_of_a_run_start_without_the_config_map_and_see_it_when_it_appears() -> None:
    pod = worker_of(TRAINING)
    made = requests_map("resnet101", namespace="research", labels={}, owner={}, files={})
    assert volumes_of(pod)["requests"]["configMap"] == {"name": made["metadata"]["name"], "optional": True}
    (container,) = pod["containers"]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "requests"]
    assert mount == {"name": "requests", "mountPath": REQUESTS_PATH, "readOnly": True}, "the kubelet updates no subPath"
    assert variables(container)[REQUESTS_VARIABLE] == REQUESTS_PATH


def test_the_head_which_has_no_rank_mounts_none() -> None:
    head = TRAINING["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert "requests" not in volumes_of(head)


def test_the_kubelet_keeps_watching_the_config_map() -> None:
    assert "immutable" not in requests_map("a", namespace="research", labels={}, owner={}, files={})


@pytest.mark.parametrize(
    ("request_", "takes"),
    [
        (job(), True),
        (job(group="a100", needs_cache=True), True),
        (search_job(), False),
        (job(kind="benchmark"), False),
        (job(kind="run", settings_yaml="", shell_command="python train.py"), False),
        (job(name="session-a", kind="session", command=("sleep", "1")), False),
    ],
)
def test_only_a_run_of_the_trainer_takes_requests(request_: JobRequest, takes: bool) -> None:  # noqa: FBT001
    assert takes_requests(render_job(request_, PROD)[-1]) is takes
