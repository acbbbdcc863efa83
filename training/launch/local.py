"""Ranks as processes on this machine: one plain process, or torchrun on one machine or several."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from training.config.schema import ScaleSettings
from training.launch.processes import DRIVER_VARIABLE, die_with_parent
from training.launch.task import OUTCOME_FILE, Outcome, RankTask, WorkersFailedError, unheard

_TERMINATION = re.compile(r"^terminate called after .*\n *what\(\): .*$", re.MULTILINE)
_TAIL_CHARACTERS = 4000
_STOP_SECONDS = 10.0
# Two lines from the table that torchrun prints at its end, for a rank that failed.
_FAILED_RANK = re.compile(r"^ *rank +: (?P<rank>\d+) .*\n *exitcode +: (?P<status>-?\d+) ", re.MULTILINE)


class ProcessLauncher:
    """Runs the ranks with one command and waits for it: the launchers `plain` and `torchrun`."""

    def launch(
        self, task: RankTask, *, on_phase: Callable[[str], None], notify: Callable[[str], None] = unheard
    ) -> Outcome:
        """Run the attempt; the output of the command goes to `logs/launcher.log` in the run's folder, or `launcher-1.log` on node 1.

        Raises:
            WorkersFailedError: the command exited without an outcome.
        """
        del notify  # the workers never change
        node = _suffix(task.settings.scale)
        task_file = task.run_directory / f"task{node}.json"
        task_file.write_text(json.dumps(task.dump()), encoding="utf-8")
        outcome_file = task.run_directory / OUTCOME_FILE
        outcome_file.unlink(missing_ok=True)
        log_file = task.run_directory / "logs" / f"launcher{node}.log"
        log_file.parent.mkdir(exist_ok=True)
        on_phase("workers_start")
        with log_file.open("a+b") as log:
            start = log.tell()
            process = subprocess.Popen(
                rank_command(task.settings.scale, task_file),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # the driver handles a terminal's Ctrl-C
                preexec_fn=die_with_parent,  # noqa: PLW1509 - a single prctl call, safe after a fork with threads
            )
            status = _wait(process)
            log.seek(start)  # the open file, because the run's folder may have been deleted
            output = log.read().decode(errors="replace")
        if outcome_file.exists():
            # A crash after that takes nothing from the result: torch's threads can abort a process that exits.
            record = json.loads(outcome_file.read_text(encoding="utf-8"))
            return Outcome(status=record["status"], step=record["step"], weights_sha256=record["weights_sha256"])
        if status != 0:
            raise WorkersFailedError(
                f"workers exited with status {status}\n{_last_lines(output)}",
                exits={0: status} if task.settings.scale.launcher == "plain" else _exits(output),
            )
        if task.settings.scale.node_rank > 0:
            return Outcome(status="done", step=0)
        # A rank called sys.exit or os._exit.
        raise WorkersFailedError("the workers exited before the training ended", exits={0: 0})

    def close(self) -> None:
        """Does nothing: no process outlives an attempt."""


def _suffix(scale: ScaleSettings) -> str:
    """What distinguishes the files of a node: all of them write to the same folder, at the same time."""
    return f"-{scale.node_rank}" if scale.node_rank else ""


def rank_command(scale: ScaleSettings, task_file: Path) -> list[str]:
    """The command that runs the ranks of this machine."""
    rank = ["-m", "training.launch.rank", str(task_file)]
    if scale.launcher == "plain":
        return [sys.executable, *rank]
    if scale.nodes == 1:
        rendezvous = ["--standalone"]
    else:
        host, _, port = str(scale.rendezvous).rpartition(":")
        rendezvous = [
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
        *rendezvous,
        f"--nproc-per-node={per_node}",
        "--max-restarts=0",
        f"--log-dir={os.devnull}",  # else it leaves an empty folder of its own
        *rank,
    ]


def _environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **os.environ,
        "PYTHONPATH": path,
        DRIVER_VARIABLE: str(os.getpid()),
        # Otherwise torchrun warns and sets it to 1. Ranks set their number of threads themselves.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


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


def _exits(output: str) -> dict[int, int | None]:
    """Exit status by rank, from torchrun's table; without the ranks that torchrun terminated after another one failed."""
    found = {int(failed["rank"]): int(failed["status"]) for failed in _FAILED_RANK.finditer(output)}
    return {rank: status for rank, status in found.items() if status != -signal.SIGTERM}


def _last_lines(output: str) -> str:
    """Why the runtime of C++ ended a process, which may be far above, and the end of the output in whole lines."""
    ended = "".join(f"{found}\n" for found in _TERMINATION.findall(output)[:1])
    return f"{ended}{_end(output)}"


def _end(output: str) -> str:
    tail = output.strip()[-_TAIL_CHARACTERS:]
    return tail if len(tail) < _TAIL_CHARACTERS else tail.partition("\n")[2]
