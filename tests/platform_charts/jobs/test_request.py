"""What is refused before any stack is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from infra.spec.cluster_names import LONGEST_JOB_NAME, REQUESTS_VARIABLE
from infra.spec.errors import SettingsError
from infra.spec.manifest import Manifest
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.requests import REQUESTS_PATH, requests_map, takes_requests
from tests.platform_charts.jobs.targets import job, rendered, search_job, target_of, variables, worker_of

WRONG_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"name": "ResNet"}, "name='ResNet'"),
    ({"name": "1st"}, "begin with a letter"),
    ({"name": "a-"}, "end with a letter or digit"),
    ({"name": "a" * (LONGEST_JOB_NAME + 1)}, "at most 44 characters"),
    ({"workers": 0}, "workers=0 must be at least 1"),
    ({"gpus_per_worker": 2}, "gpus_per_worker=2 must be 0 or 1"),
    ({"cpus_per_worker": 0}, "cpus_per_worker=0 must be at least 1"),
    ({"restarts": -1}, "restarts=-1 must be at least 0"),
    ({"keep_days": -1}, "keep_days=-1 must be between 0 and 3650"),
    ({"keep_days": float("nan")}, "keep_days=nan must be"),
    ({"deadline_hours": 0}, "deadline_hours=0 must be at least a second"),
    ({"deadline_hours": float("nan")}, "deadline_hours=nan"),
    ({"start_hours": float("inf")}, "start_hours=inf"),
    ({"run": "My run"}, "run='My run'"),
    ({"kind": "conformance"}, "give the command to run"),
    ({"command": ()}, "command is empty"),
    ({"kind": "session", "name": "session-a"}, "give the command to run"),
    ({"kind": "session", "command": ("true",)}, "name=resnet101 of a session must begin with session-"),
    ({"name": "session-a"}, "name=session-a: only the names of sessions begin with session-"),
]


def test_a_wrong_job_is_refused_by_name_value_and_rule() -> None:
    for changes, message in WRONG_JOBS:
        with pytest.raises(SettingsError) as refusal:
            job(**changes)
        assert message in str(refusal.value)


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
