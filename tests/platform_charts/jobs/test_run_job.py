"""The RayJob of a user's own command."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from infra.spec.errors import SettingsError
from infra.spec.manifest import Manifest
from platform_charts.jobs.code import PackedCode
from platform_charts.jobs.rayjob import is_command_job, render_job
from platform_charts.jobs.request import JobRequest
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.jobs.targets import job, target_of, variables, worker_of

PROD = target_of("prod")
CODE = PackedCode(identity='{"sha256": "0"}', data=b"archive")


def command_job(**changes: Any) -> JobRequest:  # noqa: ANN401 - fields of any type
    """Sixteen processes of torchrun, on GPUs."""
    return job(**{"name": "mine", "kind": "run", "settings_yaml": "", "shell_command": "torchrun train.py", **changes})


def words_of(ray_job: Manifest) -> list[str]:
    """The entrypoint."""
    return shlex.split(ray_job["spec"]["entrypoint"])


def test_the_driver_starts_the_command_on_as_many_nodes_as_there_are_worker_pods() -> None:
    (ray_job,) = render_job(command_job(group="a100"), PROD)
    (workers,) = ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    cpus = workers["rayStartParams"]["num-cpus"]
    assert words_of(ray_job) == [
        *("python", "-m", "training", "run-on-nodes", "--nodes=2", "--gpus=8", f"--cpus={cpus}"),
        *("--cmd=torchrun train.py", "--name", "mine"),
    ]
    assert workers["replicas"] == 2
    # Without GPUs every worker is a node.
    (ray_job,) = render_job(command_job(workers=3, gpus_per_worker=0, cpus_per_worker=6), PROD)
    assert words_of(ray_job)[4:7] == ["--nodes=3", "--gpus=0", "--cpus=6"]


def test_a_job_without_settings_has_no_config_map_and_mounts_none() -> None:
    objects = render_job(command_job(), PROD)
    assert [one["kind"] for one in objects] == ["RayJob"]
    assert [volume for volume in worker_of(objects[0])["volumes"] if "configMap" in volume] == []


def test_the_code_travels_with_the_job_and_the_driver_keeps_it() -> None:
    *parts, ray_job = render_job(command_job(code=CODE), PROD)
    assert [one["metadata"]["name"] for one in parts] == ["mine-code-0"]
    assert words_of(ray_job)[-4:-2] == ["--code", "/mnt/code-archive/code.tar.gz"]
    assert variables(worker_of(ray_job)["containers"][0])["RTP_CODE_FOLDER"] == "/mnt/code"


def test_a_failed_command_is_not_retried_unless_it_resumes_by_itself() -> None:
    (once,), (again,) = render_job(command_job(), PROD), render_job(command_job(restarts=2), PROD)
    assert (once["spec"]["backoffLimit"], again["spec"]["backoffLimit"]) == (0, 2)
    assert "--resumes" not in words_of(once)
    assert "--resumes" in words_of(again)


def test_a_drained_head_asks_the_command_to_stop_and_waits_for_it() -> None:
    (ray_job,) = render_job(command_job(), PROD)
    head = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert "cd /mnt/runs/mine " in head["lifecycle"]["preStop"]["exec"]["command"][-1]


def test_every_pod_passes_restricted_and_writes_to_its_log() -> None:
    *_, ray_job = render_job(command_job(code=CODE), PROD)
    assert [violation for pod in expand(ray_job) for violation in violations(pod)] == []
    assert variables(worker_of(ray_job)["containers"][0])["RTP_POD_LOG"] == "/proc/1/fd/1"


def test_only_jobs_of_this_kind_are_commands_and_a_command_and_its_kind_need_each_other() -> None:
    assert is_command_job(render_job(command_job(), PROD)[-1])
    assert not is_command_job(render_job(job(), PROD)[-1])
    changes: tuple[dict[str, Any], ...] = ({"shell_command": None}, {"shell_command": ""}, {"kind": "train"})
    for one in changes:
        with pytest.raises(SettingsError, match="shell_command="):
            command_job(**one)
