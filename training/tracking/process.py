"""The driver's handle of the follower process: start it when training has started, finish it after the run."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class DeliveryReport:
    """Result of the delivery of a run.

    Attributes:
        is_complete: everything was delivered.
        uri: the tracking store, without credentials; empty if unknown.
        run_id: the MLflow run; empty if it could not be created.
        page: URL of the run in MLflow's UI; empty if the store has no server.
        model: `name/version` in the model registry; empty if no model was registered.
        problem: why the delivery is not complete.
        lacks: what the server is too old for.
    """

    is_complete: bool
    uri: str = ""
    run_id: str = ""
    page: str = ""
    model: str = ""
    problem: str = ""
    lacks: str = ""


def library_environment() -> dict[str, str]:
    """Environment of a process that uses MLflow: this project, one thread, and no GPU, whose CUDA context takes memory from the ranks."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def reserve_stdout() -> TextIO:
    """A stream to this process's standard output, which from now on gets nothing else: libraries print to standard error."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return output


class FollowerProcess:
    """A low-priority process that delivers a run while it trains. To start it takes the driver a few milliseconds.

    End of file on its stdin means that the run has ended, so the follower also finishes after its driver is killed. It has its own
    session, because Ctrl-C is meant for the driver.
    """

    def __init__(self, run_directory: Path, *, module: str = "training.tracking.follow") -> None:
        """Start the follower of a run, or with another `module` of something else, that has logged its start."""
        log = run_directory / "logs" / "tracking.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(run_directory.resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=library_environment(),
                start_new_session=True,
            )
        self._log = log

    @property
    def pid(self) -> int:
        """Process id of the follower."""
        return self._process.pid

    def finish(self, *, timeout: float) -> DeliveryReport:
        """Signal that the run has ended and its report is written, and wait until everything is delivered.

        Args:
            timeout: seconds to wait. A follower that needs longer, e.g. for a large model, continues in the background.
        """
        self._pipe(self._process.stdin).close()
        output = self._pipe(self._process.stdout)
        is_ready, _, _ = select.select([output], [], [], timeout)
        if not is_ready:
            return DeliveryReport(
                is_complete=False, problem=f"not finished after {timeout:.0f} s, continues in the background"
            )
        line = output.readline()
        if not line:
            status = self._process.wait()
            return DeliveryReport(
                is_complete=False, problem=f"the follower exited with status {status}; see {self._log}"
            )
        return DeliveryReport(**json.loads(line))

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[Any]:
        assert pipe is not None
        return pipe
