"""A profile of a job that runs, asked for on a real API server.

The job's run is a real one on this machine: its driver's output is the log of the submitter's pod, and a folder stands for the mount.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.catalog import load_catalog
from infra.spec.cluster_names import PROFILE_REQUEST, REQUESTS_VARIABLE, SUBMITTER_ROLE
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from infra.spec.names import team_group
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from observability.profiling.window import ProfileFolder
from observability.runlog import ProfileAnswered, read_all, select
from platform_charts.jobs.rayjob import KIND_LABEL
from platform_charts.jobs.request import Target
from platform_charts.objects.access import access
from tests.engines.kubelet import log_of, mounted
from tests.engines.kubernetes import Cluster
from tests.training.cli.command import ROOT
from tests.training.cluster.commands import output_of
from tests.training.cluster.team_cluster import TEAM, TeamCluster, context_on
from tests.training.launch.driver import PATIENCE, arguments_for
from tests.training.runs import small_settings
from training.cluster.context import ClusterContext
from training.cluster.profile import ask
from training.cluster.submission import owner_reference, submit
from training.errors import ExitStatus
from training.profiling.request import ProfileRequest


@contextmanager
def member(team_cluster: TeamCluster, team: str) -> Iterator[Cluster]:
    """The API server as a member of a team, where the team research has its roles."""
    roles = [
        {**one, "metadata": {**one["metadata"], "namespace": team_cluster.namespace}}
        for one in access(load_environment("dev"), load_release())
        if one["metadata"].get("namespace") == TEAM and one["metadata"]["name"] == SUBMITTER_ROLE
    ]
    assert [one["kind"] for one in roles] == ["Role", "RoleBinding"]
    with team_cluster.api.applied(*roles):
        yield team_cluster.api.seen_by("somebody", team_group(team))


def context_of(team_cluster: TeamCluster) -> ClusterContext:
    return context_on(Target(outputs=team_cluster.stack(), release=load_release(), catalog=load_catalog()))


def requests_of(team_cluster: TeamCluster, name: str) -> Manifest:
    """The ConfigMap with the requests to a job, without its content."""
    return api_object("v1", "ConfigMap", f"{name}-requests", namespace=team_cluster.namespace)


def running(team_cluster: TeamCluster, name: str) -> Manifest:
    made = team_cluster.submit(name)
    team_cluster.starts(name)
    return made


@contextmanager
def driver(folder: Path, requests: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that goes on until it is stopped, and sees requests in a folder."""
    settings = small_settings(loop={"epochs": 100_000}, checkpoint={"every_steps": 100_000})
    command = [sys.executable, "-m", "training", *arguments_for(settings, folder)]
    environment = {**os.environ, REQUESTS_VARIABLE: str(requests)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


@pytest.mark.extended
def test_a_member_profiles_a_job_that_runs_and_gets_the_verdict(
    team_cluster: TeamCluster,
    control_plane: ControlPlane,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    running(team_cluster, name)
    requests = requests_of(team_cluster, name)
    with (
        driver(tmp_path, tmp_path / "mount") as process,
        log_of(team_cluster.api, control_plane, team_cluster.submitter(name), output_of(process)),
        mounted(team_cluster.api, requests, tmp_path / "mount"),
        member(team_cluster, TEAM) as caller,
    ):
        assert ask(caller, context_of(team_cluster), name, ProfileRequest(steps=3)) is ExitStatus.DONE
        assert team_cluster.api.read(requests) is None
        assert process.poll() is None, "the run goes on"
    run = tmp_path / "runs" / "run"
    (profile,) = ProfileFolder.all_of(run)
    assert len(profile.rank_steps(0).steps) == 3
    said = capsys.readouterr().out
    recorded, judged = select(read_all(run), ProfileAnswered)
    for part in (
        f"recording {recorded.text}",
        f"{profile.window.title}: ",
        judged.text,
        f"cp POD:{profile.path} FOLDER",
    ):
        assert part in said
    assert profile.window.title in (run / "report.html").read_text()


def test_who_is_not_in_the_team_is_told_the_role(team_cluster: TeamCluster, name: str) -> None:
    running(team_cluster, name)
    role = r"create configmaps .* which the role submitter of that namespace grants"
    with member(team_cluster, "production") as stranger, pytest.raises(RefusedError, match=role):
        ask(stranger, context_of(team_cluster), name, ProfileRequest(steps=3))


def test_a_job_that_ends_first_has_no_profile_and_no_request_stays(team_cluster: TeamCluster, name: str) -> None:
    running(team_cluster, name)
    requests = requests_of(team_cluster, name)

    def end() -> None:
        found = team_cluster.api.await_(requests, lambda _: True, what="created", seconds=PATIENCE)
        assert found["metadata"]["ownerReferences"][0]["name"] == name
        assert ProfileRequest.parse(found["data"][PROFILE_REQUEST].encode()).steps == 7
        team_cluster.ends(name)

    operator = threading.Thread(target=end)
    operator.start()
    said = f"job {name} is done: it ended before 7 of its steps were profiled"
    team_cluster.refuses(3, said, "profile", name, "--steps", "7")
    operator.join()
    assert team_cluster.api.read(requests) is None


def test_a_second_request_is_refused_while_one_is_pending(team_cluster: TeamCluster, name: str) -> None:
    job = running(team_cluster, name)
    pending = requests_of(team_cluster, name)
    pending["metadata"]["ownerReferences"] = [owner_reference(job)]
    with team_cluster.api.applied(pending):
        delete = f"kubectl -n {team_cluster.namespace} delete configmap {name}-requests"
        team_cluster.refuses(3, delete, "profile", name)
        assert team_cluster.api.read(pending) is not None


def as_search(job: Manifest) -> None:
    job["metadata"]["labels"][KIND_LABEL] = "search"


def as_command(job: Manifest) -> None:
    job["spec"]["entrypoint"] = "python -m training run-on-nodes --cmd=true"


def of_an_earlier_release(job: Manifest) -> None:
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    pod = workers["template"]["spec"]
    pod["volumes"] = [one for one in pod["volumes"] if one["name"] != "requests"]
    (container,) = pod["containers"]
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] != "requests"]


def test_a_job_that_cannot_meet_the_request_is_refused_with_the_reason(team_cluster: TeamCluster, name: str) -> None:
    cases: list[tuple[Callable[[Manifest], None], list[str], str]] = [
        (as_search, [], "is a search, and a profile is of one run"),
        (as_command, [], "runs a command of its own, which has no trainer to profile"),
        (of_an_earlier_release, [], "mounts no requests: an earlier release submitted it"),
        (lambda _: None, ["--memory"], "runs on CPUs, and a memory snapshot is of a GPU"),
    ]
    for number, (change, options, said) in enumerate(cases):
        job = f"{name}-{number}"
        objects = team_cluster.objects(job)
        change(objects[-1])
        submit(team_cluster.api, objects, env="dev")
        team_cluster.starts(job)
        team_cluster.refuses(2, said, "profile", job, *options)
        assert team_cluster.api.read(requests_of(team_cluster, job)) is None
    team_cluster.operator_writes(job, jobDeploymentStatus="Initializing")
    team_cluster.refuses(3, f"job {job} is starting: only a job that runs sees a request", "profile", job)
    team_cluster.ends(job)
    team_cluster.refuses(3, f"job {job} is done, so there is no step to profile", "profile", job)
