"""The commands with `--env`, from the command line to a real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from infra.kube.api import KubernetesApi
from tests.engines.ports import free_port
from tests.training.cli.command import ROOT, ask
from tests.training.cluster.team_cluster import TeamCluster, dev_outputs, objects, wait_until
from training.cli import main
from training.cluster.submission import submit


def file_with(folder: Path, **changes: object) -> str:
    """A file with the dev stack's outputs, some of them replaced."""
    file = folder / "outputs.json"
    file.write_text(json.dumps({**dev_outputs(), **changes}))
    return str(file)


def test_the_objects_of_a_job_are_written_without_a_cluster(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    answer = ask("job", "--env", "dev", "--team", "research", "--name", "digits",
                 "--outputs", file_with(tmp_path), "--out", str(out))  # fmt: skip
    assert answer.status == 0, answer.err
    assert tuple(yaml.safe_load_all(out.read_text())) == objects("digits")
    assert answer.heavy == frozenset()


@pytest.mark.parametrize(
    ("arguments", "changes", "status", "said"),
    [
        ([], {"platform": "9.9.9"}, 3, "does not match this checkout's release"),
        ([], {"environment": "prod"}, 2, "outputs of environment prod, not of dev"),
        (["--team", "nobody"], {}, 2, "no team nobody"),
        (["--name", "Run.1"], {}, 2, "run.name"),
        (["--name", "run.1"], {}, 2, "of a job or cluster"),
        (["--use-gpu", "--num-workers", "512", "--batch", "512"], {}, 3, "no GPU group"),
        (["--use-gpu", "--group", "none"], {}, 2, "no such GPU group"),
        (["--config", "resnet50-cifar10", "--data-path", "/data"], {}, 2, "/mnt/datasets"),
    ],
)
def test_invalid_input_is_refused_before_connecting_to_a_cluster(
    arguments: list[str],
    changes: dict[str, object],
    status: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = ["--env", "dev", "--team", "research", "--outputs", file_with(tmp_path, **changes)]
    assert main(["train", *where, *arguments]) == status
    assert said in capsys.readouterr().err


def test_a_job_that_may_outlive_its_capacity_block_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (group, *_) = dev_outputs()["gpu_groups"]
    ends = (datetime.now(UTC) + timedelta(hours=5)).isoformat()
    outputs = file_with(tmp_path, gpu_groups=[{**group, "capacity_type": "CAPACITY_BLOCK", "drain_before": ends}])
    where = ["--env", "dev", "--team", "research", "--outputs", outputs, "--out", str(tmp_path / "job.yaml")]
    asked = ["--use-gpu", "--num-workers", "1", "--group", group["name"]]
    assert main(["job", *where, *asked]) == 3
    assert "is a Capacity Block that has to be empty by" in capsys.readouterr().err
    assert main(["job", *where, *asked, "--deadline-hours", "4.9"]) == 0


def test_a_job_whose_image_was_never_pushed_is_not_submitted(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = team_cluster.outputs.read_text(encoding="utf-8")
    team_cluster.outputs.write_text(json.dumps({**json.loads(recorded), "is_recorded": False}), encoding="utf-8")
    try:
        assert run(team_cluster, "train", "--name", name, "--detach") == 3
    finally:
        team_cluster.outputs.write_text(recorded, encoding="utf-8")
    assert "rtp-dev/trainer: it was never pushed" in capsys.readouterr().err
    assert team_cluster.job(name) is None


def test_the_next_submission_deletes_expired_jobs(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(team_cluster, "train", "--name", f"{name}-a", "--keep-days", "0", "--detach") == 0
    team_cluster.operator_writes(
        f"{name}-a", jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", endTime="2026-01-01T08:00:00Z"
    )
    assert run(team_cluster, "train", "--name", f"{name}-b", "--detach") == 0
    assert f"expired jobs deleted: {name}-a" in capsys.readouterr().out
    wait_until(lambda: team_cluster.job(f"{name}-a") is None)
    assert team_cluster.job(f"{name}-b") is not None


def test_the_log_of_a_rank_without_pods_is_refused_with_its_file(
    team_cluster: TeamCluster, api: KubernetesApi, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    assert run(team_cluster, "logs", name, "--rank", "1") == 3
    assert f"job {name} has no worker pods" in capsys.readouterr().err


def test_an_unreachable_cluster_is_an_error_that_names_it(tmp_path: Path) -> None:
    server = f"https://127.0.0.1:{free_port()}"
    outputs = file_with(tmp_path, cluster={**dev_outputs()["cluster"], "endpoint": server})
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "c", "user": {"token": "x"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
                "current-context": "c",
            }
        )
    )
    answer = ask("jobs", "--env", "dev", "--outputs", outputs, "--kubeconfig", str(kubeconfig))
    assert (answer.status, answer.out) == (3, "")
    assert f"the API server {server} does not answer" in answer.err


@pytest.fixture(autouse=True)
def _without_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials the image check fails at once."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def run(team_cluster: TeamCluster, command: str, *arguments: str) -> int:
    """Run a command in the team's namespace."""
    return main([command, *team_cluster.arguments, *arguments])


def test_a_detached_job_is_submitted_with_the_next_commands(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(team_cluster, "train", "--name", name, "--detach") == 0
    said = capsys.readouterr().out
    assert f"job {name} submitted to queue research of dev: 2 worker pods on CPUs" in said
    assert f"make stop ENV=dev JOB={name} TEAM=research" in said
    assert team_cluster.job(name) is not None


def test_a_name_that_is_taken_is_refused(
    team_cluster: TeamCluster, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(team_cluster, "train", "--name", name, "--detach") == 0
    assert run(team_cluster, "train", "--name", name, "--detach") == 3
    assert f"job {name} exists" in capsys.readouterr().err


def test_the_jobs_are_listed_with_state_and_size(
    team_cluster: TeamCluster, api: KubernetesApi, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    team_cluster.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
    assert run(team_cluster, "jobs") == 0
    headings, *rows = capsys.readouterr().out.splitlines()
    assert headings.split() == [
        "job",
        "team",
        "state",
        "queue",
        "workers",
        "GPUs",
        "group",
        "age",
        "progress",
        "left",
        "reason",
    ]
    (row,) = [row.split() for row in rows if row.startswith(name)]
    assert row[1:5] == ["research", "running", "2", "0"]


def test_an_unknown_job_is_an_error_with_the_nearest_name(
    team_cluster: TeamCluster, api: KubernetesApi, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    assert run(team_cluster, "stop", f"{name}x") == 2
    assert f"did you mean {name}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("deployment", "driver", "message", "status"),
    [
        ("Complete", "SUCCEEDED", "", 0),
        ("Failed", "FAILED", "Job entrypoint command failed with exit code 1. No logs available.", 1),
        ("Failed", "FAILED", "Job entrypoint command failed with exit code 3. No logs available.", 3),
        ("Failed", "FAILED", "Job entrypoint command failed with exit code 130. No logs available.", 130),
    ],
)
def test_the_exit_status_is_the_jobs(
    team_cluster: TeamCluster, api: KubernetesApi, name: str, deployment: str, driver: str, message: str, status: int
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    team_cluster.operator_writes(name, jobDeploymentStatus=deployment, jobStatus=driver, message=message)
    assert run(team_cluster, "logs", name) == status


def test_a_job_that_has_ended_is_submitted_again_with_changed_settings(
    team_cluster: TeamCluster, api: KubernetesApi, name: str
) -> None:
    before = submit(api, team_cluster.objects(name), env="dev")
    team_cluster.operator_writes(name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    assert run(team_cluster, "resume", name, "--set", "loop.epochs=77", "--priority", "high", "--detach") == 0
    after = team_cluster.job(name)
    settings = team_cluster.api.read(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-settings", "namespace": team_cluster.namespace},
        }
    )
    assert after is not None
    assert settings is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "training-high"
    assert "epochs: 77" in settings["data"]["settings.yaml"]


def test_a_running_job_cannot_be_resumed(
    team_cluster: TeamCluster, api: KubernetesApi, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(api, team_cluster.objects(name), env="dev")
    team_cluster.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
    assert run(team_cluster, "resume", name) == 3
    assert f"job {name} is running" in capsys.readouterr().err


@contextmanager
def following(team_cluster: TeamCluster, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that follows a job, as a process without a terminal."""
    command = [sys.executable, "-m", "training", *arguments, *team_cluster.arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Read its output up to the line with this text."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"ended without {text!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_the_job_running_and_says_how_to_stop_it(
    team_cluster: TeamCluster, name: str, number: signal.Signals
) -> None:
    with following(team_cluster, "train", "--name", name) as process:
        read_until(process, "submitted")
        team_cluster.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
        read_until(process, "running")
        process.send_signal(number)
        rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"job {name} keeps running" in rest
    assert f"make stop ENV=dev JOB={name}" in rest
    assert team_cluster.job(name) is not None


def test_an_interrupt_stops_the_job_with_stop_on_interrupt(team_cluster: TeamCluster, name: str) -> None:
    with following(team_cluster, "train", "--name", name, "--stop-on-interrupt") as process:
        read_until(process, "submitted")
        team_cluster.queue(name, Admitted=True)
        team_cluster.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
        read_until(process, "running")
        process.send_signal(signal.SIGINT)
        wait_until(lambda: (team_cluster.workload(name) or {})["spec"].get("active") is False)
        team_cluster.operator_writes(name, jobDeploymentStatus="Suspended")
        rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped: the job was stopped" in rest
