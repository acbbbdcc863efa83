"""The ledger of sample ids: which samples each step consumed, to prove that none is lost or repeated.

Each rank appends one line per step to `ledger/rank-<r>.jsonl`; of ranks that read the same samples, the first. A step that was repeated
after a restart has two lines; only the last one counts, because the earlier attempt was never committed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from observability.line_file import LineFile
from training.callbacks.callback import Callback
from training.data.types import Batch
from training.loop import Loop
from training.step import StepResult

FOLDER = "ledger"


class SampleLedger(Callback):
    """Writes the ids of a rank's steps, for tests and audits."""

    def __init__(self, run_directory: Path, *, rank: int, attempt: int) -> None:
        self._path = run_directory / FOLDER / f"rank-{rank}.jsonl"
        self._attempt = attempt
        self._file: LineFile | None = None

    def on_run_start(self, loop: Loop) -> None:
        """Open the file, to append after earlier attempts."""
        self._path.parent.mkdir(exist_ok=True)
        self._file = LineFile(self._path)

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """Record the samples of the step."""
        assert self._file is not None, "the run has not started"
        ids = [int(i) for batch in micro_batches for i in batch.ids]
        entry = {"step": loop.progress.step, "epoch": loop.progress.epoch, "attempt": self._attempt, "ids": ids}
        self._file.append(f"{json.dumps(entry)}\n".encode())

    def on_close(self, loop: Loop) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def consumed_ids(run_directory: Path) -> dict[int, list[int]]:
    """Per epoch, the ids that its committed steps consumed, sorted.

    A truncated line of a killed process is skipped: its step was not committed.
    """
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted((run_directory / FOLDER).glob("rank-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            newest[path.name, entry["step"]] = entry
    epochs: dict[int, list[int]] = defaultdict(list)
    for entry in newest.values():
        epochs[entry["epoch"]] += entry["ids"]
    return {epoch: sorted(ids) for epoch, ids in sorted(epochs.items())}
