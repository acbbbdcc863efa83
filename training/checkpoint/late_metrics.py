"""Validation metrics that are measured after a checkpoint was committed: `validation.json` beside its manifest, which never changes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from training.checkpoint.manifest import LOOP_STATE_FILE, LoopState, TrainProgress
from training.checkpoint.store import CheckpointStore

FILE = "validation.json"
"""File of a checkpoint's folder; the manifest does not list it."""


@dataclass(frozen=True, kw_only=True)
class LateMetrics:
    """What became of the validation of a checkpoint.

    Attributes:
        metrics: of the objective, by name; empty if the validation was skipped.
        skipped: why there are no metrics; empty if there are.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    skipped: str = ""


_LATE_METRICS = TypeAdapter(LateMetrics)


class LateValidations:
    """The checkpoints of a run that are validated after their commit. None of them is removed before.

    The loop's thread calls it; `awaited` and `metrics` may be called by others.
    """

    def __init__(self, store: CheckpointStore, *, ranked_by: str) -> None:
        """Args: `ranked_by` is the name of the metric that ranks checkpoints."""
        self._store = store
        self._ranked_by = ranked_by
        self._awaited: dict[int, TrainProgress] = {}
        self._has_changed = False

    @property
    def awaited(self) -> frozenset[int]:
        """Steps whose validation is to come."""
        return frozenset(self._awaited)

    def progress(self, step: int) -> TrainProgress:
        """How far the run had come at an awaited step."""
        return self._awaited[step]

    def expect(self, progress: TrainProgress) -> None:
        """The checkpoint of this step, which is committed next, is to be validated."""
        self._awaited = {
            **self._awaited,
            progress.step: progress,
        }  # a new one: another thread may be reading the old one

    def find(self, *, until: int, is_due: Callable[[TrainProgress], bool]) -> list[int]:
        """Expect the validations that an earlier process has not brought to an end.

        Args:
            until: step that the run resumes from; later checkpoints are not part of its history.
            is_due: whether a checkpoint is one to be validated.

        Returns:
            Their steps, oldest first.
        """
        found = []
        for manifest in self._store.manifests():
            folder = self._store.path(manifest.step)
            if manifest.step > until or manifest.metric is not None or read(folder) is not None:
                continue
            with suppress(OSError, ValueError):  # damaged: resuming from it says so
                progress = LoopState.decode((folder / LOOP_STATE_FILE).read_bytes()).progress
                if is_due(progress):
                    self.expect(progress)
                    found.append(manifest.step)
        return found

    def settle(self, step: int, outcome: LateMetrics) -> None:
        """Record what became of an awaited validation.

        Raises:
            OSError: storage failed. The validation is no longer awaited; a resumed run does it again.
        """
        try:
            if self._store.path(step).is_dir():  # not a snapshot that was replaced before its commit
                _write(self._store.path(step), outcome)
        finally:
            self._awaited = {other: progress for other, progress in self._awaited.items() if other != step}
            self._has_changed = True

    def take_change(self) -> bool:
        """Whether a validation has been settled since the last call: other checkpoints may be among the best now."""
        has_changed, self._has_changed = self._has_changed, False
        return has_changed

    def metrics(self) -> dict[int, float | None]:
        """The metric that ranks each checkpoint, by step; None if it was not measured."""
        return ranking_metrics(self._store, self._ranked_by)


def ranking_metrics(store: CheckpointStore, name: str) -> dict[int, float | None]:
    """The metric `name` of each checkpoint by step, from its manifest or measured later; None if it was not measured.

    Raises:
        OSError: storage failed.
    """
    found: dict[int, float | None] = {}
    for manifest in store.manifests():
        late = read(store.path(manifest.step)) if manifest.metric is None else None
        found[manifest.step] = manifest.metric if late is None else late.metrics.get(name)
    return found


def read(folder: Path) -> LateMetrics | None:
    """What became of the late validation of a checkpoint; None if there was none, or if it is to come."""
    try:
        return _LATE_METRICS.validate_python(json.loads((folder / FILE).read_bytes()))
    except (FileNotFoundError, ValueError):
        return None


def _write(folder: Path, outcome: LateMetrics) -> None:
    """Write the file, completely or not at all; floats survive bit for bit."""
    partial = folder / f"{FILE}.tmp"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(asdict(outcome), file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / FILE)
