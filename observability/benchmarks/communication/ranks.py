"""Ranks on several hosts, which torchrun starts once, and which then train one run after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from observability.benchmarks.communication.rank import TASK_FILE, done_file
from observability.benchmarks.communication.wire import WireCounter
from observability.benchmarks.hosts import Host
from training import failures
from training.config.schema import ScaleSettings, TrainingSettings
from training.errors import TrainingFailedError
from training.launch.processes import DRIVER_VARIABLE, die_with_parent
from training.launch.task import RankTask, WorkersFailedError

_ROOT = Path(__file__).resolve().parents[3]
_PORT = 29400
_SAMPLE_SECONDS = 0.02
_TAIL_CHARACTERS = 3000


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """A run that has ended: its folder, and what the hosts sent meanwhile."""

    folder: Path
    wire: WireCounter


class Ranks:
    """The ranks, as a caller of `ranks_on` has them."""

    def __init__(self, hosts: Sequence[Host], *, per_host: int, folder: Path) -> None:
        self._hosts = hosts
        self._per_host = per_host
        self._folder = folder
        self._runs = 0
        self._agents = [self._start(node) for node in range(len(hosts))]

    def train(self, settings: TrainingSettings) -> TrainedRun:
        """Train a run to its end.

        Raises:
            TrainingFailedError: a rank failed.
        """
        run = self._folder / str(self._runs)
        run.mkdir()
        self._runs += 1
        partial = run / f"{TASK_FILE}.partial"
        partial.write_text(json.dumps(RankTask(settings=settings, run_directory=run, attempt=0).dump()))
        partial.replace(run / TASK_FILE)
        wire = WireCounter(self._hosts)
        missing = [run / done_file(rank) for rank in range(settings.scale.workers)]
        while missing:
            wire.sample()
            self._require_agents(run, settings.scale)
            missing = [file for file in missing if not file.exists()]
            time.sleep(_SAMPLE_SECONDS)
        return TrainedRun(folder=run, wire=wire)

    def stop(self) -> None:
        """Kill them; torchrun's agents take their ranks with them."""
        for agent in self._agents:
            agent.kill()
            agent.wait()

    def _start(self, node: int) -> subprocess.Popen[bytes]:
        host = self._hosts[node]
        command = [
            *host.prefix,
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nnodes={len(self._hosts)}",
            f"--node-rank={node}",
            f"--master-addr={self._hosts[0].address}",
            f"--master-port={_PORT}",
            f"--nproc-per-node={self._per_host}",
            "--max-restarts=0",
            "-m",
            "observability.benchmarks.communication.rank",
            str(self._folder),
        ]
        with self._log(node).open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=_ROOT,
                env={**os.environ, DRIVER_VARIABLE: str(os.getpid()), "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a terminal's Ctrl-C reaches this process, which kills them
                preexec_fn=die_with_parent,  # noqa: PLW1509 - a single prctl call, safe after a fork with threads
            )

    def _require_agents(self, run: Path, scale: ScaleSettings) -> None:
        """Raise what ended a rank: as it has recorded it, or else the end of its output."""
        for node, agent in enumerate(self._agents):
            if (status := agent.poll()) is not None:
                said = self._log(node).read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:]
                ended = WorkersFailedError(f"host {node} exited with status {status}:\n{said}")
                found = failures.cause(run, attempt=0, ended=ended, scale=scale)
                details = found.trace or found.message.partition("\n")[2]
                raise TrainingFailedError(f"{found.headline}\n{details}".strip(), remedy=found.remedy)

    def _log(self, node: int) -> Path:
        return self._folder / f"host-{node}.log"


@contextmanager
def ranks_on(hosts: Sequence[Host], *, per_host: int, folder: Path) -> Iterator[Ranks]:
    """Ranks on each host, while the context is open.

    Args:
        hosts: of which torchrun's node 0 is the first.
        per_host: ranks on each of them.
        folder: empty, for their runs and logs.
    """
    ranks = Ranks(hosts, per_host=per_host, folder=folder)
    try:
        yield ranks
    finally:
        ranks.stop()
