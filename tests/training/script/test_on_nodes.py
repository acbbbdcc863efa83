"""A command on a real Ray cluster of several nodes, with real torchrun on each of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.engines.ray_cluster import short_folder
from tests.engines.ray_raylets import Raylet, raylets
from tests.engines.report_table import ran
from tests.training.cli.command import ROOT
from tests.waiting import wait_until
from training.code.kept import UNPACKED
from training.errors import ExitStatus
from training.logs import POD_LOG_VARIABLE
from training.script.on_nodes import RECORD_FILE

_SECONDS = 180

_ALL_REDUCE = """
import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
number = torch.tensor([float(10 ** dist.get_rank())])
dist.all_reduce(number)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} on node {os.environ['GROUP_RANK']}: {int(number)}")
dist.destroy_process_group()
"""

_SAVES = """
import os, pathlib, signal, sys, time
def save(number, frame):
    (pathlib.Path(os.environ["RTP_OUTPUT_FOLDER"]) / f"saved-{os.environ['NODE_RANK']}").write_text("state")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(pathlib.Path(os.environ["RTP_OUTPUT_FOLDER"]) / f"ready-{os.environ['NODE_RANK']}").write_text(os.environ["RAY_RAYLET_PID"])
signal.pause()
"""


class Machines(NamedTuple):
    """A cluster's address and worker nodes, its code folder, and the file that stands for the pods' logs."""

    address: str
    workers: list[Raylet]
    code: Path
    pod_log: Path


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A head and four workers with one CPU each. The last two tests take one away each."""
    code = tmp_path_factory.mktemp("code")
    (code / "reduce.py").write_text(_ALL_REDUCE)
    (code / "saves.py").write_text(_SAVES)
    pod_log = tmp_path_factory.mktemp("logs") / "pods.log"
    variables = {
        # What the pods of a job have.
        UNPACKED: str(code),
        POD_LOG_VARIABLE: str(pod_log),
        "NCCL_DEBUG": "WARN",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": str(ROOT),
        # Ray's native code in this process has read what was set before.
        "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token"),
        "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN", "a" * 64),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Workers start when they are needed; 60 s for that is too short on a busy machine.
        "RAY_enable_worker_prestart": "0",
        "RAY_worker_register_timeout_seconds": str(_SECONDS),
    }
    with pytest.MonkeyPatch.context() as patch, short_folder() as folder:
        for name, value in variables.items():
            patch.setenv(name, value)
        with raylets(4, folder) as (address, workers):
            yield Machines(address, workers, code, pod_log)


class Ended(NamedTuple):
    """A driver that has ended."""

    status: int
    out: str


class Driver:
    """A driver on the head, whose output is in a file."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process, self._output = process, output

    def end(self) -> Ended:
        status = self.process.wait(_SECONDS)
        return Ended(status, self._output.read_text())


@contextmanager
def driving(machines: Machines, root: Path, text: str, *options: str, **variables: str) -> Iterator[Driver]:
    """A driver with the job's folder `root`/job, for two nodes."""
    words = ["run-on-nodes", "--name=job", "--nodes=2", "--cpus=1", f"--root={root}", f"--cmd={text}", *options]
    root.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "training", *words, f"--address={machines.address}"]
    with (root / "output").open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **variables}, stdout=file, stderr=file)
    try:
        yield Driver(process, root / "output")
    finally:
        process.kill()
        process.wait()


def ended(machines: Machines, root: Path, text: str, *options: str, **variables: str) -> Ended:
    with driving(machines, root, text, *options, **variables) as driver:
        return driver.end()


def test_torchrun_reduces_over_all_nodes_with_the_variables_of_each_pod_and_its_place(
    machines: Machines, tmp_path: Path
) -> None:
    ran("torchrun")
    done = ended(machines, tmp_path, "torchrun reduce.py && env > $RTP_OUTPUT_FOLDER/node-$NODE_RANK")
    assert done.status == 0, done.out
    assert "rank 0 of 2 on node 0: 11\n" in done.out
    assert "rank 1 of 2" not in done.out, "node 1 writes to the log of its pod only"
    records = map(json.loads, machines.pod_log.read_text().splitlines())
    said = {record["rank"]: record["message"] for record in records if " of 2 on node " in record["message"]}
    assert said == {0: "rank 0 of 2 on node 0: 11", 1: "rank 1 of 2 on node 1: 11"}
    assert json.loads((tmp_path / "job" / RECORD_FILE).read_text())["status"] == 0
    files = [(tmp_path / "job" / f"node-{rank}").read_text().splitlines() for rank in (0, 1)]
    found = [dict(line.split("=", 1) for line in lines if "=" in line) for lines in files]
    for rank, one in enumerate(found):
        assert (one["PET_NODE_RANK"], one["NODE_RANK"]) == (str(rank), str(rank))
        assert (one["PET_NNODES"], one["NNODES"], one["PET_NPROC_PER_NODE"]) == ("2", "2", "1")
        assert one["MASTER_ADDR"] == one["PET_MASTER_ADDR"] == machines.address.partition(":")[0]
        assert one["MASTER_PORT"] == one["PET_MASTER_PORT"] == found[0]["MASTER_PORT"]
        assert (one["NCCL_DEBUG"], one["OMP_NUM_THREADS"]) == ("WARN", "1")
        assert str(machines.code) in one["PYTHONPATH"].split(":")


def test_the_exit_status_of_a_failing_node_is_the_jobs_and_the_others_end(machines: Machines, tmp_path: Path) -> None:
    failed = ended(machines, tmp_path, "if ((NODE_RANK)); then echo I fail; exit 3; fi; sleep 600")
    assert failed.status == 3, failed.out
    assert re.search(r"error: node 1 \(\S+\): '.*' exited with status 3", failed.out)
    assert "[node 1] I fail" in failed.out, failed.out


def test_nodes_that_the_cluster_does_not_have_are_refused(machines: Machines, tmp_path: Path) -> None:
    refused = ended(machines, tmp_path, "true", "--nodes=5", "--start-minutes=0.02")
    assert refused.status == ExitStatus.REFUSED, refused.out
    assert "the cluster does not have 5 nodes with 1 CPUs and 0 GPUs each" in refused.out


@pytest.mark.parametrize("by", ["SIGTERM", "the head's preStop hook, which writes the file `stop`"])
def test_a_stop_reaches_every_node_whose_command_saves(by: str, machines: Machines, tmp_path: Path) -> None:
    with driving(machines, tmp_path, "python saves.py") as driver:
        _wait_until_ready(tmp_path / "job", driver)
        if by == "SIGTERM":
            driver.process.terminate()
        else:
            (tmp_path / "job" / "stop").touch()
        stopped = driver.end()
    assert stopped.status == ExitStatus.INTERRUPTED, stopped.out
    assert _saved(tmp_path / "job") == {"saved-0", "saved-1"}


def test_a_command_is_not_started_twice_on_a_cluster_whose_head_was_lost(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / RECORD_FILE).write_text(json.dumps({"cluster": "job-abcde", "status": None}))
    refused = ended(machines, tmp_path, "touch $RTP_OUTPUT_FOLDER/ran", RAY_CLUSTER_NAME="job-abcde")
    assert refused.status == ExitStatus.FAILED
    assert "the head of cluster job-abcde was lost while the command ran" in refused.out
    assert not (tmp_path / "job" / "ran").exists()
    again = ended(machines, tmp_path, "touch $RTP_OUTPUT_FOLDER/ran", "--resumes", RAY_CLUSTER_NAME="job-abcde")
    assert again.status == 0, again.out
    assert (tmp_path / "job" / "ran").exists()
    repeated = ended(machines, tmp_path, "exit 5", RAY_CLUSTER_NAME="job-abcde")
    assert (repeated.status, "has ended already, with status 0" in repeated.out) == (0, True)


def test_a_drained_node_lets_every_node_save_and_fails_the_job(machines: Machines, tmp_path: Path) -> None:
    """Its preStop hook announces the end of the node (platform_charts/jobs/drain.py)."""
    with driving(machines, tmp_path, "python saves.py") as driver:
        _drain(machines, _node_0(tmp_path / "job", machines, driver))
        failed = driver.end()
    assert failed.status == ExitStatus.FAILED, failed.out
    assert re.search(r"error: node 0 \(\S+\) is being drained while 'python saves\.py' runs", failed.out)
    assert _saved(tmp_path / "job") == {"saved-0", "saved-1"}


def test_a_lost_node_fails_the_job_with_its_name(machines: Machines, tmp_path: Path) -> None:
    with driving(machines, tmp_path, "python saves.py") as driver:
        _node_0(tmp_path / "job", machines, driver).lose()
        failed = driver.end()
    assert failed.status == ExitStatus.FAILED, failed.out
    assert re.search(r"error: node 0 \(\S+\) was lost while 'python saves\.py' ran", failed.out)
    assert _saved(tmp_path / "job") == {"saved-1"}


def _saved(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("saved-*")}


def _node_0(folder: Path, machines: Machines, driver: Driver) -> Raylet:
    """Node 0 of a command, once it is ready."""
    _wait_until_ready(folder, driver)
    pid = int((folder / "ready-0").read_text())
    return next(one for one in machines.workers if one.raylet_pid == pid)


def _drain(machines: Machines, node: Raylet) -> None:
    """Announce the end of a node like its pod's preStop hook."""
    ray = str(Path(sys.executable).with_name("ray"))
    reason = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=the pod was asked to end"]
    where = [f"--address={machines.address}", f"--node-id={node.id}", "--deadline-remaining-seconds=80"]
    subprocess.run([ray, "drain-node", *reason, *where], check=True, capture_output=True)


def _wait_until_ready(folder: Path, driver: Driver) -> None:
    def is_ready() -> bool:
        assert driver.process.poll() is None, driver.end().out
        return all((folder / f"ready-{rank}").exists() for rank in (0, 1))

    wait_until(is_ready, seconds=_SECONDS)
