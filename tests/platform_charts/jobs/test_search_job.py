"""The RayJob of a search: one cluster with the workers of all trials that run at the same time."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.manifest import Manifest
from platform_charts.jobs.code import PackedCode
from platform_charts.jobs.placement import place_job
from platform_charts.jobs.price import describe_choice
from platform_charts.jobs.rayjob import is_command_job, is_search, render_job
from platform_charts.jobs.request import JobRequest
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.jobs.targets import (
    group_of,
    job,
    rendered,
    search_job,
    target_of,
    variables,
    with_groups,
    worker_of,
)

PROD = target_of("prod")
A100, L4 = group_of("p4d.24xlarge"), group_of("g6.12xlarge")  # 8 GPUs with EFA, and 4


def head_of(ray_job: Manifest) -> Manifest:
    """The container of the head."""
    template = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    container: Manifest = template["spec"]["containers"][0]
    return container


def test_one_job_has_the_workers_of_all_concurrent_trials_and_the_search_of_its_name_as_driver() -> None:
    code = PackedCode(identity='{"sha256": "0"}', data=b"archive")
    *_, ray_job = render_job(search_job(code=code, group="a100"), PROD)
    (workers,) = ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert workers["replicas"] * int(limits["nvidia.com/gpu"]) == 8
    assert shlex.split(ray_job["spec"]["entrypoint"]) == [
        *("python", "-m", "tune", "search", "--config", "/etc/training/settings.yaml"),
        *("--code", "/mnt/code-archive/code.tar.gz", "--name", "first"),
    ]
    # It continues on a new cluster after its driver has failed, for which a terminated pod waits.
    assert ray_job["spec"]["backoffLimit"] == 1
    assert "cd /mnt/runs/searches/first " in head_of(ray_job)["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert [violation for pod in expand(ray_job) for violation in violations(pod)] == []


def test_a_search_is_told_from_other_jobs_by_a_label() -> None:
    ours = rendered(search_job(), PROD)
    assert ours["metadata"]["labels"]["ray-train-platform/kind"] == "search"
    assert is_search(ours)
    assert not is_search(rendered(job(), PROD))


def test_the_head_has_memory_for_what_drives_each_trial_and_no_cpu_for_ranks() -> None:
    plain, ours = (rendered(search_job(**extra), PROD) for extra in ({}, {"driver_memory_mib": 8 * 224}))
    assert [head_of(one)["resources"]["limits"]["memory"] for one in (plain, ours)] == ["6Gi", "8Gi"]
    assert ours["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_a_trial_lies_within_one_node_if_it_can() -> None:
    for workers, trials, pods, gpus in (
        (2, 4, 1, 8),  # all trials on one node
        (2, 6, 2, 6),  # three trials in each of two pods
        (2, 5, 5, 2),  # five are not divisible by the pods that would do: one trial each, on two nodes
        (3, 2, 1, 6),
        (3, 4, 2, 6),  # a trial lies within a node, though eight GPUs would hold two and two thirds
        (8, 3, 3, 8),
        (16, 2, 4, 8),  # each trial on two whole nodes
        (1, 32, 4, 8),
    ):
        placement = place_job(search_job(workers=workers, worker_groups=trials), with_groups(A100))
        assert (placement.pods, placement.gpus) == (pods, gpus), (workers, trials)
    cpus = place_job(search_job(workers=2, worker_groups=3, gpus_per_worker=0, cpus_per_worker=2), PROD)
    assert (cpus.pods, cpus.share.cpus) == (6, 2), "every rank of every trial is a pod"


def test_only_trials_on_several_nodes_need_efa() -> None:
    within, across = (
        place_job(search_job(workers=workers, worker_groups=4 // (workers // 8)), with_groups(A100))
        for workers in (8, 16)
    )
    assert (within.pods, within.efa) == (4, 0)
    assert (across.pods, across.efa) == (4, 4)


def test_a_choice_of_groups_does_not_excuse_missing_interfaces_that_nobody_needs() -> None:
    request = search_job(workers=8, worker_groups=4, gpu_model="a100")
    placement = place_job(request, with_groups(A100))
    assert "EFA" not in describe_choice(placement, with_groups(A100))


def test_trials_that_do_not_fit_into_the_group_are_refused_with_the_numbers() -> None:
    for workers, trials, message in (
        (8, 5, r"40 GPUs \(5 x 8\) need 5 nodes of 8, it has at most 4"),
        (2, 17, r"34 GPUs \(17 x 2\) need 5 nodes"),
        (9, 2, "9 ranks do not divide evenly over 2 nodes; use 8 or 10"),
    ):
        with pytest.raises(RefusedError, match=message):
            place_job(search_job(workers=workers, worker_groups=trials), with_groups(A100))
    shared = group_of("g6.12xlarge", devices_per_gpu=4)
    with pytest.raises(RefusedError, match="pods share each of its GPUs"):
        place_job(search_job(workers=1, worker_groups=2, group=shared.name), with_groups(shared))


def test_a_wrong_request_is_refused() -> None:
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"worker_groups": 0}, "worker_groups=0 must be at least 1"),
        ({"driver_memory_mib": -1}, "driver_memory_mib=-1 must be at least 0"),
        ({"kind": "train"}, "worker_groups=4 with kind=train: only a search has several"),
    )
    for changes, message in wrong:
        with pytest.raises(SettingsError, match=message):
            search_job(**changes)


def test_more_trials_than_a_head_node_has_memory_for_are_refused_with_the_numbers() -> None:
    """An m7i.xlarge has 16 GiB, of which the kubelet leaves 13.8 and the daemon sets 12.8."""
    dev, common = target_of("dev"), {"gpus_per_worker": 0, "cpus_per_worker": 1, "worker_groups": 27}
    assert dev.outputs.head_instance_type == "m7i.xlarge"
    limits = head_of(rendered(search_job(driver_memory_mib=27 * 224, **common), dev))["resources"]["limits"]
    assert limits == {"cpu": "2", "memory": "12Gi"}
    message = r"head of first needs 13 GiB .*m7i.xlarge.* room for 12 GiB\n.*search.concurrency"
    with pytest.raises(RefusedError, match=message):
        rendered(search_job(driver_memory_mib=28 * 224, **common), dev)


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
