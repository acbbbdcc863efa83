"""The whole command on a real API server, whose job is the real program on this machine: its output is the log of the submitter's pod.

The fakes of KubeRay and Kueue write the status of the real ones.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_labels import GROUP_LABEL, HEAD_GROUP
from tests.engines.kubelet import log_of
from tests.engines.s3 import S3Api
from tests.engines.tcp_proxy import proxied
from tests.training.cluster.commands import command, output_of, read_until
from tests.training.cluster.conformance.suites import cases_of, run_suite
from tests.training.cluster.team_cluster import TeamCluster
from tests.training.conformance.local_job import program
from tests.waiting import wait_until
from training.cluster.conformance import following, job_checks
from training.cluster.objects import CONFIG_MAP, RAY_JOB
from training.cluster.steps import submit_job
from training.errors import ExitStatus

PATIENCE = 240
JOB_PATIENCE = 420
"""Of the job's program: it took five minutes on two cores with a load of twenty."""

HEAD_NODE = api_object("v1", "Node", "head-of-conformance", labels={GROUP_LABEL: HEAD_GROUP})
"""A node that is not fake; other tests of the same API server have nodes that are."""

FROM_THE_JOB = ("queue", "network.policies", "fabric", "storage.objects", "storage.foreign", "training", "tracking")
ONLY = [word for name in FROM_THE_JOB for word in ("--only", name)]


def submitted(team_cluster: TeamCluster) -> Manifest | None:
    found = team_cluster.api.items(*RAY_JOB, namespace=team_cluster.namespace)
    return next((one for one in found if one["metadata"]["name"].startswith("conformance-")), None)


def _await_job(team_cluster: TeamCluster) -> str:
    wait_until(lambda: submitted(team_cluster) is not None, seconds=PATIENCE)
    found = submitted(team_cluster)
    assert found is not None
    return str(found["metadata"]["name"])


@contextmanager
def operated_job(
    team_cluster: TeamCluster, plane: ControlPlane, process: subprocess.Popen[str]
) -> Iterator[threading.Thread]:
    """Whatever job is submitted is admitted, runs as a process of this machine, and ends as that does."""

    def operate() -> None:
        name = _await_job(team_cluster)
        team_cluster.queue(name, Admitted=True)
        with log_of(team_cluster.api, plane, team_cluster.submitter(name), output_of(process)) as kubelet:
            team_cluster.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
            status = _status_of(process)
            kubelet.is_over.wait(PATIENCE)
            ended = ("Complete", "SUCCEEDED") if status == 0 else ("Failed", "FAILED")
            team_cluster.operator_writes(name, jobDeploymentStatus=ended[0], jobStatus=ended[1])
            wait_until(lambda: submitted(team_cluster) is None, seconds=PATIENCE)

    operator = threading.Thread(target=operate)
    operator.start()
    try:
        yield operator
    finally:
        process.kill()
        operator.join(PATIENCE)


def _status_of(process: subprocess.Popen[str]) -> int:
    """The status of the job's program; one that takes too long is killed, so that the suite learns of its end."""
    try:
        return process.wait(JOB_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@pytest.mark.extended
def test_two_ranks_pass_every_check_after_one_of_them_was_killed(
    team_cluster: TeamCluster,
    control_plane: ControlPlane,
    s3_api: S3Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Over 20 CPU seconds: two ranks measure, one is killed, and both measure again.
    monkeypatch.chdir(tmp_path)
    others = s3_api.object_names()
    words = [*team_cluster.arguments, "--no-use-gpu", *ONLY, "--junit", "junit.xml", "--html", "page.html"]
    with (
        team_cluster.api.applied(HEAD_NODE),
        operated_job(team_cluster, control_plane, program(tmp_path, "probe", s3_api)),
    ):
        ran = run_suite(*words, folder=tmp_path)
    said = capsys.readouterr().out
    # One pod has both ranks, so that the sum is right and the pods are not two.
    assert ran.failed() == {"fabric.sum": "2 ranks on 1 pods, a right sum"}, said
    assert ran.status == ExitStatus.FAILED
    skipped = {name for name, verdict in ran.verdicts().items() if verdict == "skipped"}
    assert skipped == {"fabric.cuda", "fabric.bandwidth", "fabric.efa", "storage.foreign"}
    assert "GB/s with gloo: without GPUs there is no floor" in ran.found("fabric.bandwidth")
    assert "rank 1 was killed; starts from steps 0, " in ran.found("training.resume")
    assert "is FINISHED, with step " in ran.found("tracking.run")
    assert f"S3 is a stand-in at {s3_api.endpoint}" in ran.record["fakes"]
    cases = cases_of((tmp_path / "junit.xml").read_text())
    assert list(cases) == list(ran.verdicts())
    assert [name for name, case in cases.items() if case.find("failure") is not None] == ["fabric.sum"]
    assert "2 ranks on 1 pods, a right sum" in (tmp_path / "page.html").read_text()
    assert not list((tmp_path / "runs").glob("*-fabric"))
    assert s3_api.object_names() == others


def test_ctrl_c_deletes_the_job(team_cluster: TeamCluster) -> None:
    with command("conformance", *team_cluster.arguments, "--no-use-gpu", "--only", "training") as process:
        read_until(process, "submitted to queue")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == ExitStatus.INTERRUPTED
        assert "is deleted" in output_of(process).read()
    wait_until(lambda: submitted(team_cluster) is None, seconds=PATIENCE)


def test_a_submission_that_is_interrupted_leaves_no_job(
    team_cluster: TeamCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is on the API server, and its answer has not arrived."""
    monkeypatch.chdir(tmp_path)

    def interrupted(*arguments: Any) -> NoReturn:  # noqa: ANN401 - those of the real one
        submit_job(*arguments)
        assert submitted(team_cluster) is not None
        raise KeyboardInterrupt

    monkeypatch.setattr(job_checks, "submit_job", interrupted)
    answer = team_cluster.ask("conformance", "--no-use-gpu", "--only", "training")
    assert (answer.status, " is deleted" in answer.out) == (ExitStatus.INTERRUPTED, True)
    wait_until(lambda: submitted(team_cluster) is None, seconds=PATIENCE)


def test_a_cluster_that_is_gone_in_the_middle_fails_what_is_not_known(
    team_cluster: TeamCluster,
    control_plane: ControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(following, "_GONE_SECONDS", 0.0)
    with proxied(team_cluster.kubeconfig, tmp_path) as (proxy, kubeconfig):

        def cut() -> None:
            settings = api_object(*CONFIG_MAP, f"{_await_job(team_cluster)}-settings", namespace=team_cluster.namespace)
            team_cluster.api.await_(settings, lambda _: True, what="submitted")
            proxy.cut()

        cutter = threading.Thread(target=cut)
        cutter.start()
        words = [*team_cluster.arguments, "--kubeconfig", str(kubeconfig), "--no-use-gpu", *ONLY]
        ran = run_suite(*words, folder=tmp_path)
        cutter.join(PATIENCE)
    assert ran.status == ExitStatus.FAILED
    assert set(ran.verdicts().values()) == {"failed"}
    assert "the API server has been silent" in ran.found("training.loss")
    left = submitted(team_cluster)
    assert left is not None
    assert (
        f"delete it: kubectl -n {team_cluster.namespace} delete rayjob {left['metadata']['name']}"
        in capsys.readouterr().err
    )
    KubernetesApi(control_plane.client()).delete(left)
