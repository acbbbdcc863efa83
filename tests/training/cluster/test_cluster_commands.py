"""Submitting jobs, and the commands on them, on a real API server: all objects of a job or none, and each name once."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.rayjob import IMAGE_ANNOTATION
from tests.training.cli.command import ask, assert_refused
from tests.training.cluster.commands import command, read_until
from tests.training.cluster.team_cluster import TeamCluster, dev_outputs, objects, outputs_file
from tests.waiting import wait_until
from training.cluster import control
from training.cluster.job_manifest import image_of
from training.cluster.submission import submit
from training.environment import run_arguments, submitted


def test_the_objects_of_a_job_are_written_without_a_cluster(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    answer = ask("job", "--env", "dev", "--team", "research", "--name", "digits",
                 "--outputs", str(outputs_file(tmp_path)), "--out", str(out))  # fmt: skip
    assert answer.status == 0, answer.err
    assert tuple(yaml.safe_load_all(out.read_text())) == objects("digits")
    assert answer.heavy == frozenset()


def test_invalid_input_is_refused_before_connecting_to_a_cluster(tmp_path: Path) -> None:
    (group, *_) = dev_outputs()["gpu_groups"]
    ends = (datetime.now(UTC) + timedelta(hours=5)).isoformat()
    block = {"gpu_groups": [{**group, "capacity_type": "CAPACITY_BLOCK", "drain_before": ends}]}
    in_block = ("--use-gpu", "--num-workers", "1", "--group", str(group["name"]))
    tagged = f"{dev_outputs()['registries']['trainer']}:custom-0123"

    def refuses(status: int, said: str, *arguments: str, **changes: object) -> None:
        where = ("--env", "dev", "--team", "research", "--outputs", str(outputs_file(tmp_path, **changes)))
        assert_refused(status, said, "train", *where, *arguments)

    refuses(2, "run.name", "--name", "Run.1")
    refuses(2, "of a job or cluster", "--name", "run.1")
    refuses(3, "no GPU group", "--use-gpu", "--num-workers", "512", "--batch", "512")
    refuses(2, "no such GPU group", "--use-gpu", "--group", "none")
    refuses(3, "has to be empty by", *in_block, **block)
    refuses(2, "is not a digest reference", "--image", tagged)


def test_the_next_submission_deletes_expired_jobs_with_their_settings(team_cluster: TeamCluster, name: str) -> None:
    old, new, running = f"{name}-a", f"{name}-b", f"{name}-c"
    for one in (old, running):
        assert team_cluster.run("train", "--name", one, "--keep-days", "0", "--detach") == 0
    team_cluster.starts(running)
    status = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "endTime": "2026-01-01T08:00:00Z"}
    team_cluster.operator_writes(old, **status)
    assert f"expired jobs deleted: {old}\n" in team_cluster.ask("train", "--name", new, "--detach").out
    wait_until(lambda: team_cluster.job(old) is None and team_cluster.settings_of(old) is None)
    assert team_cluster.job(new)
    assert team_cluster.job(running)


@pytest.fixture(autouse=True)
def _without_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials the image check fails at once."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_a_detached_job_is_submitted_with_the_next_commands_and_listed(team_cluster: TeamCluster, name: str) -> None:
    said = team_cluster.ask("train", "--name", name, "--detach").out
    assert f"job {name} submitted to queue research of dev: 2 worker pods on CPUs" in said
    assert f"make stop ENV=dev JOB={name} TEAM=research" in said
    team_cluster.starts(name)
    headings, *rows = team_cluster.ask("jobs").out.splitlines()
    assert " ".join(headings.split()) == "job team state queue workers GPUs group age progress left reason"
    (row,) = [row.split() for row in rows if row.startswith(name)]
    assert row[1:5] == ["research", "running", "2", "0"]


def test_an_ended_job_is_submitted_again_with_changed_settings_and_image(team_cluster: TeamCluster, name: str) -> None:
    image = f"{dev_outputs()['registries']['trainer']}@sha256:{'d' * 64}"
    before = team_cluster.submit(name)
    team_cluster.ends(name)
    changes = ["--set", "loop.epochs=77", "--priority", "high", "--image", image]
    assert team_cluster.run("resume", name, *changes, "--detach") == 0
    after, settings = team_cluster.existing_job(name), team_cluster.existing_settings(name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "training-high"
    assert "epochs: 77" in settings["data"]["settings.yaml"]
    team_cluster.ends(name)
    assert team_cluster.run("resume", name, "--detach") == 0
    again = team_cluster.existing_job(name)
    assert (image_of(again), again["metadata"]["annotations"][IMAGE_ANNOTATION]) == (image, image)


def test_a_signal_leaves_the_job_running_and_says_how_to_stop_it(team_cluster: TeamCluster, name: str) -> None:
    with command("train", "--name", name, *team_cluster.arguments) as process:
        read_until(process, "submitted")
        team_cluster.starts(name)
        read_until(process, "running")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"job {name} keeps running" in rest
    assert f"make stop ENV=dev JOB={name}" in rest
    assert team_cluster.job(name) is not None


def test_an_interrupt_stops_the_job_with_stop_on_interrupt(team_cluster: TeamCluster, name: str) -> None:
    with command("train", "--name", name, "--stop-on-interrupt", *team_cluster.arguments) as process:
        read_until(process, "submitted")
        team_cluster.queue(name, Admitted=True)
        team_cluster.starts(name)
        read_until(process, "running")
        process.send_signal(signal.SIGINT)
        wait_until(lambda: (team_cluster.workload(name) or {})["spec"].get("active") is False)
        team_cluster.operator_writes(name, jobDeploymentStatus="Suspended")
        rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped: the job was stopped" in rest


def test_a_job_owns_its_settings_and_knows_when_it_was_submitted(team_cluster: TeamCluster, name: str) -> None:
    before = time.time()
    made = team_cluster.submit(name)
    (container,) = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    assert before - 0.001 <= submitted(variables) <= time.time()
    assert run_arguments(variables) == f"ENV=dev JOB={name} TEAM=research"
    settings = team_cluster.existing_settings(name)
    assert [owner["uid"] for owner in settings["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]


def test_a_name_that_is_taken_is_refused_until_its_job_is_removed(team_cluster: TeamCluster, name: str) -> None:
    job = team_cluster.submit(name)
    with pytest.raises(RefusedError, match=rf"job {name} exists .*\n.*make logs ENV=dev JOB={name} TEAM=research"):
        team_cluster.submit(name)
    team_cluster.ends(name)
    with pytest.raises(RefusedError, match=rf"\(done\).*\n.*resume.* or free the name: kubectl .* rayjob {name}"):
        team_cluster.submit(name)
    control.remove(team_cluster.api, job, f"{name}-settings")
    team_cluster.submit(name)
    assert team_cluster.settings_of(name)


class BeforeTheOther(KubernetesApi):
    """The API server as of before the other submission."""

    def read(self, manifest: Mapping[str, Any]) -> Manifest | None:
        del manifest
        return None


def test_one_of_two_submissions_at_once_is_refused(
    team_cluster: TeamCluster, name: str, control_plane: ControlPlane
) -> None:
    first = team_cluster.submit(name)
    with pytest.raises(RefusedError, match=f"job {name} exists"):
        submit(BeforeTheOther(control_plane.client()), team_cluster.objects(name), env="dev")
    assert team_cluster.existing_job(name)["metadata"]["uid"] == first["metadata"]["uid"]


def test_a_submission_over_a_quota_leaves_no_job(team_cluster: TeamCluster, name: str) -> None:
    spec = {"hard": {"count/rayjobs.ray.io": "0"}}
    quota = api_object("v1", "ResourceQuota", "jobs", namespace=team_cluster.namespace, spec=spec)
    with team_cluster.api.applied(quota):
        team_cluster.api.await_(quota, lambda one: "used" in one.get("status", {}), what="counted")
        with pytest.raises(ApiError, match=r"exceeded quota: jobs, .*\n.*kubectl delete rayjob NAME"):
            team_cluster.submit(name)
    assert team_cluster.job(name) is None


def test_what_the_api_server_refuses_has_a_remedy(
    team_cluster: TeamCluster, name: str, control_plane: ControlPlane
) -> None:
    stranger = KubernetesApi(control_plane.client("jane", ["strangers"]))
    with pytest.raises(ApiError, match=r'User "jane" cannot get resource "rayjobs" .*\n.*role of the team'):
        submit(stranger, team_cluster.objects(name), env="dev")
    settings, job = team_cluster.objects(name)
    for one in (settings, job):
        one["metadata"]["namespace"] = "nowhere"
    with pytest.raises(ApiError, match=r'namespaces "nowhere" not found\n.*bring the stack up'):
        submit(team_cluster.api, (settings, job), env="dev")
