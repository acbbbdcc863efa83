"""The RayJob and its ConfigMap."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.manifest import Manifest
from platform_charts.jobs.pods import CACHE_LIMIT_VARIABLE
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from platform_charts.jobs.schedule import ScheduleRequest, occurrence_objects, template_name
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.targets import group_of, job, rendered, target_of, variables, with_groups, worker_of
from training.cluster.job_manifest import JobOptions, options_of
from training.config.load import load_settings
from training.config.sources import find_config
from training.data.cache import LIMIT_VARIABLE

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


def test_settings_priority_deadlines_and_retries_of_the_request_reach_the_job_and_its_pods() -> None:
    text = "# a comment\nrun:\n  seed: 1\n"
    fields = {"deadline_hours": 1.5, "start_hours": 0.25, "restarts": 2, "keep_days": 0.5, "run": "first_try"}
    settings, ray_job = render_job(job(settings_yaml=text, priority="high", **fields), PROD)
    assert settings["data"] == {"settings.yaml": text}
    volumes = worker_of(ray_job)["volumes"]
    assert {"name": "settings", "configMap": {"name": settings["metadata"]["name"]}} in volumes
    labels, spec = ray_job["metadata"]["labels"], ray_job["spec"]
    assert labels["kueue.x-k8s.io/queue-name"] == "research"
    assert labels["kueue.x-k8s.io/priority-class"] == "training-high"
    assert {pod["spec"]["priorityClassName"] for pod in expand(ray_job)} == {"training-high"}
    assert ray_job["metadata"]["annotations"] == {"ray-train-platform/keep-days": "0.5"}
    assert (spec["activeDeadlineSeconds"], spec["preRunningDeadlineSeconds"], spec["backoffLimit"]) == (5400, 900, 2)
    assert shlex.split(spec["entrypoint"])[-2:] == ["--name", "first_try"]


def test_each_kind_runs_its_program() -> None:
    trains = "python -m training train --config /etc/training/settings.yaml --name resnet101"
    assert EFA_JOB["spec"]["entrypoint"] == trains, "a restart resumes the run of the job's name"
    assert rendered(job(kind="benchmark"), PROD)["spec"]["entrypoint"] == "python -m observability.benchmarks"


def test_what_the_security_of_a_cluster_and_of_its_quota_relies_on_is_so_in_every_job() -> None:
    spec, cluster = EFA_JOB["spec"], EFA_JOB["spec"]["rayClusterSpec"]
    assert "suspend" not in spec, "a second apply would suspend a running job"
    assert spec["shutdownAfterJobFinishes"] is True, "Kueue releases the quota with the nodes"
    assert "deletionStrategy" not in spec
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == PROD.release.stack.ray
    assert all(pod["spec"]["automountServiceAccountToken"] is False for pod in expand(EFA_JOB))
    head, *_, submitter = expand(EFA_JOB)
    assert head["spec"]["serviceAccountName"] == "trainer"
    assert "serviceAccountName" not in submitter["spec"], "it has no AWS role"
    mounts = {mount["mountPath"]: mount for mount in worker_of(EFA_JOB)["containers"][0]["volumeMounts"]}
    assert mounts["/mnt/datasets"] == {"name": "datasets", "mountPath": "/mnt/datasets", "readOnly": True}
    assert mounts["/mnt/runs"] == {"name": "runs", "mountPath": "/mnt/runs"}, "a volume of the team, no sub path"


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


def test_a_pod_without_gpus_takes_one_rank_beside_its_loaders() -> None:
    request = job(workers=4, gpus_per_worker=0, cpus_per_worker=2, loader_cpus=1)
    [workers] = rendered(request, PROD)["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    [container] = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["cpu"] == "2"
    assert workers["rayStartParams"]["num-cpus"] == "1"


def test_libfabric_uses_rdma_where_the_family_has_it_and_a_job_in_one_pod_no_network() -> None:
    for type_, has_rdma in (("p4d.24xlarge", True), ("p5.48xlarge", True), ("g6.12xlarge", False)):
        found = variables(worker_of(rendered(job(), with_groups(group_of(type_))))["containers"][0])
        assert found["FI_PROVIDER"] == "efa"
        assert ("FI_EFA_USE_DEVICE_RDMA" in found) is has_rdma, type_
    found = variables(worker_of(rendered(job(workers=8, group="a100"), PROD))["containers"][0])
    assert not [name for name in found if name.startswith(("NCCL_", "FI_", "GLOO_"))]


def test_a_pod_on_spot_tolerates_its_taints_and_ends_within_the_two_minutes_of_notice() -> None:
    ray_job = rendered(job(workers=4, group="l4", team="research"), target_of("staging"))
    tolerated = [toleration["key"] for toleration in worker_of(ray_job)["tolerations"]]
    assert tolerated == ["nvidia.com/gpu", "ray-train-platform/spot", "ray-train-platform/no-capacity"]
    assert all(pod["spec"]["terminationGracePeriodSeconds"] < 120 for pod in expand(ray_job)[:-1])
    assert worker_of(EFA_JOB)["terminationGracePeriodSeconds"] == 300


def _kept(ray_job: Manifest) -> set[str]:
    """The pods of a job that a drain may not evict."""
    marked = [
        pod for pod in expand(ray_job) if pod["metadata"]["labels"].get("ray-train-platform/eviction") == "refused"
    ]
    return {pod["metadata"]["labels"].get("ray.io/node-type", "submitter") for pod in marked}


def test_a_drain_may_evict_only_workers_on_nodes_that_ec2_ends_so_that_they_save() -> None:
    assert _kept(EFA_JOB) == {"head", "worker", "submitter"}
    block = {"capacity_type": "CAPACITY_BLOCK", "drain_before": "2027-01-01T00:00:00+00:00"}
    for fields in ({"capacity_type": "SPOT"}, block):
        target = with_groups(group_of("p5.48xlarge", name="fleeting", **fields))
        assert _kept(rendered(job(group="fleeting"), target)) == {"head", "submitter"}, fields


def test_lustre_is_mounted_read_only_where_the_stack_has_it() -> None:
    head, worker, *_ = expand(rendered(job(), target_of("lustre")))
    for pod in (head, worker):
        mounts = {mount["mountPath"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert mounts["/mnt/lustre"] == {"name": "lustre", "mountPath": "/mnt/lustre", "readOnly": True}
        claim = {"claimName": "lustre", "readOnly": True}
        assert {"name": "lustre", "persistentVolumeClaim": claim} in pod["spec"]["volumes"]
    assert "lustre" not in json.dumps(EFA_JOB)


def test_workers_on_nodes_with_nvme_and_no_other_pods_have_a_cache_with_a_limit() -> None:
    with_nvme = rendered(job(workers=4), with_groups(group_of("p4d.24xlarge", cache_gib=6000)))
    without = rendered(job(workers=4), with_groups(group_of("p4d.24xlarge")))
    worker = worker_of(with_nvme)
    (container,) = worker["containers"]
    assert {"name": "cache", "emptyDir": {"sizeLimit": "3000Gi"}} in worker["volumes"]
    assert {"name": "cache", "mountPath": "/mnt/cache"} in container["volumeMounts"]
    assert variables(container)[CACHE_LIMIT_VARIABLE] == "3000"
    assert CACHE_LIMIT_VARIABLE == LIMIT_VARIABLE
    head = with_nvme["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    for pod in (head, worker_of(without)):
        assert "cache" not in {volume["name"] for volume in pod["volumes"]}
        assert CACHE_LIMIT_VARIABLE not in variables(pod["containers"][0])


REPOSITORY = PROD.outputs.registries["trainer"]
DERIVED = f"{REPOSITORY}@sha256:{'d' * 64}"


def images(ray_job: Manifest) -> set[str]:
    """The images of all containers of a job's pods."""
    return {container["image"] for pod in expand(ray_job) for container in pod["spec"]["containers"]}


def test_every_pod_runs_the_image_of_the_request_or_the_releases() -> None:
    assert images(rendered(job(image=DERIVED), PROD)) == {DERIVED}
    assert images(rendered(job(), PROD)) == {PROD.release.images["trainer"].reference_in(REPOSITORY)}


def test_the_pods_of_a_session_run_its_image_and_those_of_a_job_the_trainers() -> None:
    digests = {"trainer": f"sha256:{'1' * 64}", "session": f"sha256:{'2' * 64}"}
    target = replace(PROD, release=PROD.release.with_digests(digests))
    session = job(name="session-a", kind="session", command=("true",))
    assert images(rendered(session, target)) == {f"{REPOSITORY}@{digests['session']}"}
    assert images(rendered(job(), target)) == {f"{REPOSITORY}@{digests['trainer']}"}
    assert images(rendered(replace(session, image=DERIVED), target)) == {DERIVED}


def test_an_image_without_a_digest_alone_or_of_another_repository_is_refused() -> None:
    for reference in (f"{REPOSITORY}:custom-0123", REPOSITORY, f"{REPOSITORY}:x@sha256:{'d' * 64}"):
        with pytest.raises(SettingsError, match=r"image=\S+ is not a digest reference") as refused:
            job(image=reference)
        assert "make image FROM=" in refused.value.remedy
    for repository in ("docker.io/library/python", REPOSITORY.replace("trainer", "mlflow"), f"{REPOSITORY}/more"):
        with pytest.raises(RefusedError, match=rf"is not in {REPOSITORY}") as not_ours:
            render_job(job(image=f"{repository}@sha256:{'d' * 64}"), PROD)
        assert "make image FROM=" in not_ours.value.remedy


def test_a_resumed_job_keeps_its_image_and_another_one_replaces_it() -> None:
    kept = options_of(rendered(job(image=DERIVED), PROD))
    assert kept.image == DERIVED
    other = DERIVED.replace("d" * 64, "e" * 64)
    assert JobOptions(image=other).or_else(kept).image == other
    assert JobOptions(group="a100").or_else(kept).image == DERIVED
    # One with the release's image is resumed with that of the next release.
    assert options_of(rendered(job(), PROD)).image is None


def test_every_job_of_a_schedule_runs_the_image() -> None:
    request = replace(job(image=DERIVED), name=template_name("nightly"))
    _, ray_job = occurrence_objects(ScheduleRequest(name="nightly", job=request, cron="0 2 * * *"), PROD)
    assert images(ray_job) == {DERIVED}
