"""Sessions and a user's own command on their way to a job and back, and what is refused before a cluster is asked."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from infra.spec.cluster_names import CODE_PATH, TRAINER_PATH
from platform_charts.jobs.placement import place_job
from platform_charts.jobs.price import usd_per_hour
from platform_charts.jobs.rayjob import render_job
from tests.platform_charts.jobs.targets import group_of, job, target_of, with_groups
from tests.training.cli.command import assert_refused
from tests.training.cluster.team_cluster import context_on, outputs_file, target
from training.cli import main
from training.cluster.command_jobs import Command, command_of_job, name_of
from training.cluster.job_manifest import JobOptions, config_maps, options_of
from training.cluster.session_access import session_name
from training.cluster.sessions import cluster, cost_so_far, session_request
from training.cluster.state import Observation, state_of
from training.code.archive import pack
from training.code.identity import SUFFIX
from training.errors import SettingsError
from training.options.scripts import CommandOptions
from training.options.sessions import ClusterCommandOptions

ODD = "python train.py --note 'it'\"'\"'s a=b' && echo \"$HOME\" | tee x; # done\nexit 3"


def run_words(folder: Path, *arguments: str) -> list[str]:
    """The command line of `run --out`, which writes `job.yaml` to a folder."""
    where = ["--outputs", str(outputs_file(folder)), "--out", str(folder / "job.yaml")]
    return ["run", "--env", "dev", "--team", "research", *where, *arguments]


def test_the_command_of_a_job_can_be_read_from_it() -> None:
    for command in (
        Command(text="torchrun train.py", workers=8, gpus_per_worker=1, cpus_per_worker=1),
        Command(text=ODD, workers=3, gpus_per_worker=0, cpus_per_worker=6),
    ):
        options = JobOptions(group="a10g" if command.gpus_per_worker else None, restarts=2, priority="low")
        *_, ray_job = render_job(command.request("mine", team="research", options=options, code=None), target())
        assert command_of_job(ray_job) == command
        found = options_of(ray_job)
        assert (found.group, found.restarts, found.priority) == (options.group, 2, "low")
        assert config_maps(ray_job) == ()


def test_run_writes_the_objects_of_the_job(code: Path, tmp_path: Path) -> None:
    given = ["--cmd", ODD, "--code", str(code), "--workers", "4", "--group", "a10g", "--name", "mine"]
    assert main(run_words(tmp_path, *given)) == 0
    part, ray_job = yaml.safe_load_all((tmp_path / "job.yaml").read_text())
    assert command_of_job(ray_job) == Command(text=ODD, workers=4, gpus_per_worker=1, cpus_per_worker=1)
    assert config_maps(ray_job) == (part["metadata"]["name"],)


def test_bad_input_is_refused_before_connecting_to_a_cluster(code: Path, tmp_path: Path) -> None:
    archive = tmp_path / f"code{SUFFIX}"
    archive.write_bytes(pack(code).data)
    assert main(run_words(tmp_path, "--cmd=torchrun train.py", "--code", str(archive))) == 0
    kept = ["--cmd=torchrun other.py", "--code", str(archive)]
    folder = ["--code", str(code)]
    for arguments, status, said in (
        (["--cmd=torchrun tain.py", *folder], 2, "did you mean train.py?"),
        (kept, 2, f"other.py: no such file in the code of {archive}"),
        (["--cmd=torchrun train.py"], 2, "train.py: no such file in the job's pods, which have no code folder"),
        (["--cmd=true", "--name=session-x"], 2, "only the names of sessions begin with session-"),
        (["--cmd=true", "--group=a10g", "--no-use-gpu"], 2, "leave the group out"),
        (["--cmd=nvidia-smi", "--use-gpu", "--workers=512"], 3, "no GPU group of stack dev can take nvidia-smi-"),
    ):
        assert_refused(status, said, *run_words(tmp_path, *arguments))


def test_a_job_is_named_after_its_script_and_the_time() -> None:
    now = datetime(2026, 11, 22, 8, 0, 0, tzinfo=UTC)
    assert name_of(CommandOptions(cmd="torchrun tools/Big_model.py"), now=now) == "big-model-20261122-080000"
    assert name_of(CommandOptions(cmd="torchrun x.py", name="mine"), now=now) == "mine"


def test_the_exit_status_of_the_command_is_mirrored() -> None:
    command = Command(text="exit 3", workers=1, gpus_per_worker=0, cpus_per_worker=1)
    *_, ray_job = render_job(command.request("mine", team="research", options=JobOptions(), code=None), target())
    for code, stage, status, reason in (
        (3, "failed", 3, "the command exited with status 3"),
        (137, "failed", 137, "the command exited with status 137"),
        (130, "stopped", 130, "the command was stopped"),
        (-9, "failed", 1, "the driver exited with code -9"),
    ):
        message = f"Job entrypoint command failed with exit code {code}, last available logs"
        ray_job["status"] = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": message}
        state = state_of(Observation(job=ray_job))
        assert (state.stage, state.status, state.reason) == (stage, status, reason)


CONTEXT = context_on(target())


def options(**changes: object) -> ClusterCommandOptions:
    """The command line `make cluster ENV=dev NAME=notes`."""
    return ClusterCommandOptions(**{"env": "dev", "run": "notes", **changes})  # type: ignore[arg-type]


def test_a_session_is_a_job_with_limits_and_a_price() -> None:
    request, price = session_request(options(gpus=4, group="a10g", idle="45m", hours=6), CONTEXT, name="session-notes")
    assert (request.name, request.kind, request.workers, request.gpus_per_worker) == ("session-notes", "session", 4, 1)
    assert request.deadline_hours == 7
    assert price is not None
    assert price > 1
    assert request.command is not None
    assert shlex.join(request.command) == (
        f"python -m training session --gpus=4 --idle-minutes=45 --hours=6 --usd-per-hour={price:g}"
    )


def test_a_session_without_gpus_has_workers_on_the_system_nodes_and_no_price() -> None:
    image = f"{CONTEXT.target.outputs.registries['trainer']}@sha256:{'d' * 64}"
    request, price = session_request(options(gpus=0, workers=2, cpus=3, image=image), CONTEXT, name="session-notes")
    assert (request.workers, request.gpus_per_worker, request.cpus_per_worker) == (2, 0, 3)
    assert request.image == image
    assert price is None


def test_a_stopped_session_tells_what_it_has_cost_since_its_admission() -> None:
    request, price = session_request(options(gpus=4, group="a10g"), CONTEXT, name="session-notes")
    assert request.command is not None
    found = {"spec": {"entrypoint": shlex.join(request.command)}, "status": {"startTime": "2026-11-22T08:00:00Z"}}
    assert price is not None
    now = datetime(2026, 11, 22, 10, 30, tzinfo=UTC)
    assert cost_so_far(found, now=now) == f"10.00 GPU-hours, about ${price * 2.5:,.2f}"
    assert cost_so_far({**found, "status": {}}, now=now) == "0.00 GPU-hours, about $0.00"


def test_wrong_limits_and_names_are_refused_by_name_and_value(tmp_path: Path) -> None:
    for changes, message in (
        ({"idle": "soon"}, "idle time 'soon'"),
        ({"gpus": -1}, "workers=-1"),
        ({"hours": 0.0}, "hours=0"),
    ):
        with pytest.raises(SettingsError, match=message):
            session_request(options(**changes), CONTEXT, name="session-notes")
    assert session_name("notes") == session_name("session-notes") == "session-notes"
    with pytest.raises(SettingsError, match="name='session-Notes'"):
        session_request(options(), CONTEXT, name=session_name("Notes"))
    with pytest.raises(SettingsError, match="--detach does not wait"):
        cluster(options(detach=True, code=tmp_path))


def test_the_pods_of_a_session_have_its_code_on_their_import_path_and_those_of_other_jobs_none() -> None:
    request, _ = session_request(options(), CONTEXT, name="session-notes")
    _, rendered = render_job(request, CONTEXT.target)
    cluster = rendered["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        mount = {"name": "runs", "mountPath": CODE_PATH, "subPath": "session-notes/code"}
        assert mount in container["volumeMounts"]
        assert {"name": "PYTHONPATH", "value": f"{TRAINER_PATH}:{CODE_PATH}"} in container["env"]
    assert f"PYTHONPATH={TRAINER_PATH} " in Path("training/image/Dockerfile").read_text()
    _, other = render_job(job(workers=1, cpus_per_worker=1), CONTEXT.target)
    assert CODE_PATH not in str(other)


def test_the_price_of_a_job_is_that_of_its_part_of_the_nodes_with_gpus_in_the_region_of_the_prices() -> None:
    stack = with_groups(group_of("g6.12xlarge"))
    node = stack.catalog.find_instance("g6.12xlarge").usd_per_hour
    assert node is not None
    elsewhere = replace(stack, outputs=stack.outputs.model_copy(update={"region": "eu-north-1"}))
    one, prod = job(workers=1, cpus_per_worker=1), target_of("prod")
    without_gpus = job(gpus_per_worker=0, workers=1, cpus_per_worker=1)
    for request, target_, price in (
        (one, stack, pytest.approx(node / 4)),
        (job(workers=8, cpus_per_worker=1), stack, pytest.approx(node * 2)),
        (without_gpus, prod, None),
        (one, elsewhere, None),
    ):
        assert usd_per_hour(place_job(request, target_), target_) == price
