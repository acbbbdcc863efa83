"""The ledger of sample ids: which samples each step consumed, to prove that none is lost or repeated.

Each rank appends one line per step to `ledger/rank-<r>.jsonl`; of ranks that read the same samples, the first. It does so before the
step: a rank that dies after the step's all-reduce leaves peers that have taken the step, and may go on from it. An attempt begins with a
line that says at which step it starts: later steps of the attempts before were never committed, and do not count. Rank 0 also adds it
to the files of ranks that this attempt does not have, because the attempt before may have had more.
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

FOLDER = "ledger"


class SampleLedger(Callback):
    """Writes the ids of a rank's steps, for tests and audits."""

    def __init__(self, run_directory: Path, *, rank: int, world: int, attempt: int) -> None:
        """Args: `rank` of `world` that record their samples."""
        self._folder = run_directory / FOLDER
        self._rank = rank
        self._world = world
        self._attempt = attempt
        self._file: LineFile | None = None

    def on_run_start(self, loop: Loop) -> None:
        """Open the file, to append after earlier attempts."""
        self._folder.mkdir(exist_ok=True)
        start = _line({"start": loop.progress.step, "attempt": self._attempt})
        self._file = LineFile(self._folder / _file_name(self._rank))
        self._file.append(start)
        if self._rank == 0:
            own = {_file_name(rank) for rank in range(self._world)}
            for path in self._folder.glob(_file_name("*")):
                if path.name not in own:
                    with LineFile(path) as other:
                        other.append(start)

    def on_step_start(self, loop: Loop, micro_batches: list[Batch]) -> None:
        """Record the samples of the step."""
        assert self._file is not None, "the run has not started"
        ids = [int(i) for batch in micro_batches for i in batch.ids]
        entry = {"step": loop.progress.step + 1, "epoch": loop.progress.epoch, "attempt": self._attempt, "ids": ids}
        self._file.append(_line(entry))

    def on_close(self, loop: Loop) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def consumed_ids(run_directory: Path) -> dict[int, list[int]]:
    """Per epoch, the ids that its committed steps consumed, sorted; of a run that broke off, also those after its newest checkpoint.

    A truncated line of a killed process is skipped: its step was not committed.
    """
    committed = [
        entry for path in (run_directory / FOLDER).glob(_file_name("*")) for entry in _committed(path).values()
    ]
    epochs: dict[int, list[int]] = defaultdict(list)
    for entry in committed:
        epochs[entry["epoch"]] += entry["ids"]
    return {epoch: sorted(ids) for epoch, ids in sorted(epochs.items())}


def _committed(path: Path) -> dict[int, dict[str, Any]]:
    """The entries of a file that count, by step."""
    entries: dict[int, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "start" in entry:
            entries = {step: kept for step, kept in entries.items() if step <= entry["start"]}
        else:
            entries[entry["step"]] = entry
    return entries


def _line(entry: dict[str, Any]) -> bytes:
    return f"{json.dumps(entry)}\n".encode()


def _file_name(rank: int | str) -> str:
    return f"rank-{rank}.jsonl"
