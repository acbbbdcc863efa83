"""Ranks as ordinary processes of this machine: one plain process, or torchrun on one machine or several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from training.config.schema import ScaleSettings
from training.launch.processes import die_with_parent
from training.launch.rank import OUTCOME_FILE, TASK_FILE
from training.launch.task import Outcome, RankTask, WorkersFailedError

_TAIL_BYTES = 4000
_STOP_SECONDS = 10.0


class ProcessLauncher:
    """Starts a command that runs the ranks and waits for it; serves the launchers `plain` and `torchrun`."""

    def launch(self, task: RankTask, *, on_phase: Callable[[str], None]) -> Outcome:
        """Run the attempt; what the command prints goes to `logs/launcher.log` of the run's folder.

        Raises:
            WorkersFailedError: the command ended with another status than 0.
        """
        task_file = task.run_directory / TASK_FILE
        task_file.write_text(json.dumps(task.dump()), encoding="utf-8")
        outcome_file = task.run_directory / OUTCOME_FILE
        outcome_file.unlink(missing_ok=True)
        log_file = task.run_directory / "logs" / "launcher.log"
        log_file.parent.mkdir(exist_ok=True)
        on_phase("workers_start")
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                command(task.settings.scale, task_file),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # a terminal's Ctrl-C is the driver's to answer
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call, and the driver forks before it has threads that matter
            )
        status = _wait(process)
        if status != 0:
            raise WorkersFailedError(f"workers ended with status {status}\n{_tail(log_file)}")
        if task.settings.scale.node_rank > 0:
            return Outcome(status="done", step=0)
        record = json.loads(outcome_file.read_text(encoding="utf-8"))
        return Outcome(status=record["status"], step=record["step"], weights_sha256=record["weights_sha256"])

    def close(self) -> None:
        """Nothing is kept between attempts."""


def command(scale: ScaleSettings, task_file: Path) -> list[str]:
    """The command that runs this machine's ranks."""
    rank = ["-m", "training.launch.rank", str(task_file)]
    if scale.launcher == "plain":
        return [sys.executable, *rank]
    if scale.nodes == 1:
        meeting = ["--standalone"]
    else:
        host, _, port = str(scale.rendezvous).rpartition(":")
        meeting = [
            f"--nnodes={scale.nodes}",
            f"--node-rank={scale.node_rank}",
            f"--master-addr={host}",
            f"--master-port={port}",
        ]
    per_node = scale.workers // scale.nodes
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *meeting,
        f"--nproc-per-node={per_node}",
        "--max-restarts=0",
        *rank,
    ]


def _environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    # torchrun sets OMP_NUM_THREADS=1 with a warning where it is unset; ranks set their own number of threads.
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _tail(path: Path) -> str:
    data = path.read_bytes()
    return data[-_TAIL_BYTES:].decode(errors="replace").strip()
