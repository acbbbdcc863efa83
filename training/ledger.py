"""The ledger of sample ids: which samples each step consumed, for proofs that none is lost or repeated.

Each rank appends one line a step to `ledger/rank-<r>.jsonl`. A step that was done again after a restart stands there twice; only its
last attempt counts, because what came before was never committed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any

from training.data.types import Batch

FOLDER = "ledger"


class LedgerWriter:
    """Writes the ids of a rank's steps; line-buffered, since it is for tests and audits and not for speed."""

    def __init__(self, run_directory: Path, *, rank: int, attempt: int) -> None:
        folder = run_directory / FOLDER
        folder.mkdir(exist_ok=True)
        self._file = (folder / f"rank-{rank}.jsonl").open("a", buffering=1, encoding="utf-8")
        self._attempt = attempt

    def record(self, *, step: int, epoch: int, micro_batches: list[Batch]) -> None:
        """Note the samples of optimizer step `step`."""
        ids = [int(i) for batch in micro_batches for i in batch.ids]
        self._file.write(json.dumps({"step": step, "epoch": epoch, "attempt": self._attempt, "ids": ids}) + "\n")

    def __enter__(self) -> LedgerWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def consumed_ids(run_directory: Path) -> dict[int, list[int]]:
    """Per epoch, the ids that its committed steps consumed, sorted.

    A line cut short by a kill is passed over: its step was not committed.
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
