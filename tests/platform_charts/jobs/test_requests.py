"""Requests to a job that runs: what mounts them."""

from __future__ import annotations

from infra.spec.cluster_names import REQUESTS_VARIABLE
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
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
    assert "immutable" not in made, "the kubelet keeps watching it"
    head = TRAINING["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert "requests" not in volumes_of(head), "it has no rank"


def test_only_a_run_of_the_trainer_takes_requests() -> None:
    command = job(kind="run", settings_yaml="", shell_command="python train.py")
    session = job(name="session-a", kind="session", command=("sleep", "1"))
    for takes, requests in (
        (True, (job(), job(group="a100", needs_cache=True))),
        (False, (search_job(), job(kind="benchmark"), command, session)),
    ):
        assert {takes_requests(render_job(one, PROD)[-1]) for one in requests} == {takes}
