"""The RayJob and its ConfigMap."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from infra.spec.manifest import Manifest
from infra.spec.settings import environment_names
from platform_charts.jobs.pods import CACHE_LIMIT_VARIABLE
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.jobs.targets import group_of, job, rendered, target_of, variables, with_groups, worker_of
from training.config.load import load_settings
from training.config.sources import find_config, shipped_names
from training.data.cache import LIMIT_VARIABLE
from training.logs import POD_LOG_VARIABLE

PROD = target_of("prod")
EFA_JOB = rendered(job(group="a100"), PROD)


def request_of(config: str) -> JobRequest:
    """The request that a shipped configuration becomes."""
    scale = load_settings([find_config(config)], environment={}).scale
    return job(
        name=f"run-{config}",
        settings_yaml=find_config(config).read_text(encoding="utf-8"),
        workers=scale.workers,
        gpus_per_worker=int(scale.gpu),
        cpus_per_worker=scale.cpus_per_worker,
    )


@pytest.mark.parametrize("environment", environment_names())
@pytest.mark.parametrize("config", shipped_names())
def test_every_pod_of_a_shipped_configuration_passes_restricted(environment: str, config: str) -> None:
    target = target_of(environment)
    request = replace(request_of(config), team=target.outputs.teams[0].name)
    settings, ray_job = render_job(request, target)
    pods = expand(ray_job)
    assert [violation for pod in pods for violation in violations(pod)] == []
    assert {pod["metadata"]["namespace"] for pod in pods} == {settings["metadata"]["namespace"]}


def test_the_settings_reach_the_pods_unchanged() -> None:
    text = "# a comment\nrun:\n  seed: 1\n"
    settings, ray_job = render_job(job(settings_yaml=text), PROD)
    assert settings["data"] == {"settings.yaml": text}
    volumes = worker_of(ray_job)["volumes"]
    assert {"name": "settings", "configMap": {"name": settings["metadata"]["name"]}} in volumes


def test_the_job_is_in_its_teams_queue_with_its_priority() -> None:
    labels = rendered(job(priority="high"), PROD)["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "research"
    assert labels["kueue.x-k8s.io/priority-class"] == "training-high"


def test_every_pod_has_the_priority_class() -> None:
    pods = expand(rendered(job(priority="low"), PROD))
    assert {pod["spec"]["priorityClassName"] for pod in pods} == {"training-low"}


def test_a_second_apply_cannot_suspend_a_running_job() -> None:
    assert "suspend" not in EFA_JOB["spec"]


def test_kueue_sees_that_the_nodes_go_with_the_job() -> None:
    assert EFA_JOB["spec"]["shutdownAfterJobFinishes"] is True
    assert "deletionStrategy" not in EFA_JOB["spec"]


def test_deadlines_are_in_seconds() -> None:
    spec = rendered(job(deadline_hours=1.5, start_hours=0.25, restarts=2), PROD)["spec"]
    assert (spec["activeDeadlineSeconds"], spec["preRunningDeadlineSeconds"], spec["backoffLimit"]) == (5400, 900, 2)


def test_a_restart_resumes_the_run_of_the_jobs_name() -> None:
    assert shlex.split(EFA_JOB["spec"]["entrypoint"])[-2:] == ["--name", "resnet101"]


def test_a_job_can_resume_a_run_of_another_name() -> None:
    entrypoint = rendered(job(run="first_try"), PROD)["spec"]["entrypoint"]
    assert shlex.split(entrypoint)[-2:] == ["--name", "first_try"]


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("train", "python -m training train --config /etc/training/settings.yaml --name resnet101"),
        ("benchmark", "python -m observability.benchmarks"),
    ],
)
def test_each_kind_runs_its_program(kind: str, program: str) -> None:
    assert rendered(job(kind=kind), PROD)["spec"]["entrypoint"] == program


def test_a_command_reaches_the_program_through_both_shells() -> None:
    arguments = ("one two", "'quoted'", "$HOME", "a;b", "*")
    program = (sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))")
    spec = rendered(job(kind="conformance", command=(*program, *arguments)), PROD)["spec"]
    # The submitter's shell splits the entrypoint; Ray joins the words again, and a shell on the head splits them.
    joining = shlex.join([sys.executable, "-c", "import shlex, sys; print(shlex.join(sys.argv[1:]))"])
    submitted = run_in_shell(f"{joining} {spec['entrypoint']}")
    assert json.loads(run_in_shell(submitted)) == list(arguments)


def run_in_shell(command: str) -> str:
    """What a command prints."""
    return subprocess.run(["/bin/bash", "-c", command], check=True, capture_output=True, text=True).stdout


def test_the_head_takes_no_work_from_the_workers() -> None:
    spec = EFA_JOB["spec"]["rayClusterSpec"]["headGroupSpec"]
    assert spec["rayStartParams"]["num-cpus"] == "0"
    assert spec["template"]["spec"]["nodeSelector"] == {"ray-train-platform/group": "heads"}


def test_a_pod_without_gpus_takes_one_rank_beside_its_loaders() -> None:
    request = job(workers=4, gpus_per_worker=0, cpus_per_worker=2, loader_cpus=1)
    [workers] = rendered(request, PROD)["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    [container] = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["cpu"] == "2"
    assert workers["rayStartParams"]["num-cpus"] == "1"


def test_clients_of_ray_need_the_token() -> None:
    assert EFA_JOB["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}


def test_the_ray_version_is_the_releases() -> None:
    assert EFA_JOB["spec"]["rayClusterSpec"]["rayVersion"] == PROD.release.stack.ray


def test_a_worker_with_efa_requests_as_many_interfaces_and_huge_pages_as_its_limits() -> None:
    resources = worker_of(EFA_JOB)["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["nvidia.com/gpu"] == "8"
    assert resources["limits"]["vpc.amazonaws.com/efa"] == "4"
    assert resources["limits"]["hugepages-2Mi"] == "5120Mi"


@pytest.mark.parametrize(("type_", "has_rdma"), [("p4d.24xlarge", True), ("p5.48xlarge", True), ("g6.12xlarge", False)])
def test_libfabric_uses_rdma_where_the_family_has_it(type_: str, has_rdma: bool) -> None:  # noqa: FBT001
    found = variables(worker_of(rendered(job(), with_groups(group_of(type_))))["containers"][0])
    assert found["FI_PROVIDER"] == "efa"
    assert ("FI_EFA_USE_DEVICE_RDMA" in found) is has_rdma


def test_a_job_in_one_pod_has_no_network_variables() -> None:
    found = variables(worker_of(rendered(job(workers=8, group="a100"), PROD))["containers"][0])
    assert not [name for name in found if name.startswith(("NCCL_", "FI_", "GLOO_"))]


def test_the_ranks_write_to_the_log_of_their_pod() -> None:
    # The container's first process is Ray's, of the same user; the name is the trainer's own.
    assert variables(worker_of(EFA_JOB)["containers"][0])[POD_LOG_VARIABLE] == "/proc/1/fd/1"


def test_a_job_has_the_days_for_which_it_is_kept_as_an_annotation() -> None:
    annotations = rendered(job(keep_days=0.5), PROD)["metadata"]["annotations"]
    assert annotations == {"ray-train-platform/keep-days": "0.5"}


def test_workers_tolerate_the_taints_of_their_group_and_that_it_has_no_capacity() -> None:
    worker = worker_of(rendered(job(workers=4, group="l4", team="research"), target_of("staging")))
    tolerated = [toleration["key"] for toleration in worker["tolerations"]]
    assert tolerated == ["nvidia.com/gpu", "ray-train-platform/spot", "ray-train-platform/no-capacity"]


def _kept(ray_job: Manifest) -> set[str]:
    """The pods of a job that a drain may not evict."""
    marked = [
        pod for pod in expand(ray_job) if pod["metadata"]["labels"].get("ray-train-platform/eviction") == "refused"
    ]
    return {pod["metadata"]["labels"].get("ray.io/node-type", "submitter") for pod in marked}


def test_a_drain_may_evict_no_pod_of_a_job() -> None:
    assert _kept(EFA_JOB) == {"head", "worker", "submitter"}


@pytest.mark.parametrize(
    "fields",
    [{"capacity_type": "SPOT"}, {"capacity_type": "CAPACITY_BLOCK", "drain_before": "2027-01-01T00:00:00+00:00"}],
)
def test_workers_on_nodes_that_ec2_ends_are_evicted_so_that_they_save(fields: dict[str, str]) -> None:
    target = with_groups(group_of("p5.48xlarge", name="fleeting", **fields))
    assert _kept(rendered(job(group="fleeting"), target)) == {"head", "submitter"}


def test_a_pod_on_spot_ends_within_the_two_minutes_of_notice() -> None:
    ray_job = rendered(job(workers=4, group="l4", team="research"), target_of("staging"))
    pods = expand(ray_job)[:-1]
    assert all(pod["spec"]["terminationGracePeriodSeconds"] < 120 for pod in pods)


def test_a_pod_on_demand_has_longer_to_save() -> None:
    assert worker_of(EFA_JOB)["terminationGracePeriodSeconds"] == 300


def test_shared_memory_is_half_of_the_pods_memory() -> None:
    worker = worker_of(EFA_JOB)
    [size] = [volume["emptyDir"]["sizeLimit"] for volume in worker["volumes"] if volume["name"] == "shm"]
    memory = worker["containers"][0]["resources"]["limits"]["memory"]
    assert 2 * int(size.removesuffix("Mi")) == 1024 * int(memory.removesuffix("Gi"))


def test_datasets_are_read_only_and_runs_are_the_teams_own() -> None:
    mounts = {mount["mountPath"]: mount for mount in worker_of(EFA_JOB)["containers"][0]["volumeMounts"]}
    assert mounts["/mnt/datasets"] == {"name": "datasets", "mountPath": "/mnt/datasets", "readOnly": True}
    assert mounts["/mnt/runs"] == {"name": "runs", "mountPath": "/mnt/runs"}


def test_lustre_is_mounted_read_only_where_the_stack_has_it() -> None:
    head, worker, *_ = expand(rendered(job(), target_of("lustre")))
    for pod in (head, worker):
        mounts = {mount["mountPath"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert mounts["/mnt/lustre"] == {"name": "lustre", "mountPath": "/mnt/lustre", "readOnly": True}
        claim = {"claimName": "lustre", "readOnly": True}
        assert {"name": "lustre", "persistentVolumeClaim": claim} in pod["spec"]["volumes"]


def test_nothing_of_lustre_is_in_the_pods_of_a_stack_without_it() -> None:
    assert "lustre" not in json.dumps(EFA_JOB)


def test_no_pod_of_a_job_can_talk_to_the_api_server() -> None:
    assert all(pod["spec"]["automountServiceAccountToken"] is False for pod in expand(EFA_JOB))


def test_the_submitter_has_no_aws_role() -> None:
    head, *_, submitter = expand(EFA_JOB)
    assert head["spec"]["serviceAccountName"] == "trainer"
    assert "serviceAccountName" not in submitter["spec"]


def test_the_image_comes_from_the_stacks_registry() -> None:
    [image] = {container["image"] for pod in expand(EFA_JOB) for container in pod["spec"]["containers"]}
    repository, _, tag = image.rpartition(":")
    assert repository == PROD.outputs.registries["trainer"]
    assert tag == "not-pushed"


def test_workers_on_nodes_with_nvme_have_a_cache_with_a_limit() -> None:
    worker = worker_of(rendered(job(workers=4), with_groups(group_of("p4d.24xlarge", cache_gib=6000))))
    (container,) = worker["containers"]
    assert {"name": "cache", "emptyDir": {"sizeLimit": "3000Gi"}} in worker["volumes"]
    assert {"name": "cache", "mountPath": "/mnt/cache"} in container["volumeMounts"]
    assert variables(container)[CACHE_LIMIT_VARIABLE] == "3000"
    assert CACHE_LIMIT_VARIABLE == LIMIT_VARIABLE


def test_there_is_no_cache_without_nvme_and_none_in_the_head() -> None:
    with_nvme = rendered(job(workers=4), with_groups(group_of("p4d.24xlarge", cache_gib=6000)))
    without = rendered(job(workers=4), with_groups(group_of("p4d.24xlarge")))
    head = with_nvme["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    for pod in (head, worker_of(without)):
        assert "cache" not in {volume["name"] for volume in pod["volumes"]}
        assert CACHE_LIMIT_VARIABLE not in variables(pod["containers"][0])
