"""The follower as the driver sees it: a process to start once training runs, and to be told when the run is over."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class DeliveryReport:
    """What came of the delivery of a run.

    Attributes:
        is_complete: MLflow has all of it.
        uri: the store, without a password; empty where nothing is known.
        run_id: the MLflow run; empty where it could not be made.
        page: address of the run's page; empty where the store has no server.
        model: `name/version` in the model registry; empty where none was registered.
        problem: why it is not complete, in words.
    """

    is_complete: bool
    uri: str = ""
    run_id: str = ""
    page: str = ""
    model: str = ""
    problem: str = ""


class FollowerProcess:
    """Delivers a run while it goes on. Starting one costs the driver a few milliseconds; it works at low priority.

    The follower takes the end of its input for the end of the run, so that it also ends, in its own time, after a driver that was
    killed. It is in a session of its own: Ctrl-C is for the driver.
    """

    def __init__(self, run_directory: Path) -> None:
        """Start the follower of a run whose start is in its log."""
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        # The follower needs one thread, and no GPU: a context there would take memory from the ranks.
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        log = run_directory / "logs" / "tracking.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "training.tracking.follow", str(run_directory.resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        self._log = log

    @property
    def pid(self) -> int:
        """Process id of the follower."""
        return self._process.pid

    def finish(self, *, timeout: float) -> DeliveryReport:
        """Say that the run is over, its end logged and its report written, and wait until all of it is delivered.

        Args:
            timeout: seconds to wait. A follower that needs longer, for a large model say, goes on by itself afterwards.
        """
        self._pipe(self._process.stdin).close()
        answer = self._pipe(self._process.stdout)
        is_there, _, _ = select.select([answer], [], [], timeout)
        if not is_there:
            return DeliveryReport(
                is_complete=False, problem=f"still being sent after {timeout:.0f} s, in the background"
            )
        line = answer.readline()
        if not line:
            status = self._process.wait()
            return DeliveryReport(
                is_complete=False, problem=f"the follower ended with status {status}; see {self._log}"
            )
        return DeliveryReport(**json.loads(line))

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[Any]:
        assert pipe is not None
        return pipe
