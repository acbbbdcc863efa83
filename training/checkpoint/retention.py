"""Policy: which checkpoints are kept, by their steps and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from observability.objective_metrics import ranked
from training.config.schema import CheckpointSettings


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Keep the newest and the best.

    Attributes:
        keep_last: number of newest checkpoints to keep, at least 1.
        keep_best: number of best checkpoints to keep; they may be among the newest.
        higher_is_better: whether a higher metric is better.
    """

    keep_last: int
    keep_best: int
    higher_is_better: bool

    def __post_init__(self) -> None:
        if self.keep_last < 1:
            raise ValueError(f"keep_last={self.keep_last} must be at least 1: the newest checkpoint is never removed")

    @classmethod
    def of(cls, settings: CheckpointSettings, *, higher_is_better: bool) -> Retention:
        """The rule of the settings, for checkpoints ranked by a metric whose higher or lower values are better."""
        return cls(
            keep_last=settings.keep_last,
            keep_best=settings.keep_best,
            higher_is_better=higher_is_better,
        )

    def retained(self, metrics: Mapping[int, float | None]) -> frozenset[int]:
        """The steps to keep, from all steps with their metrics.

        A checkpoint whose metric is missing or NaN is never among the best; of equal metrics the earlier step wins.
        """
        newest = sorted(metrics)[-self.keep_last :]
        return frozenset(newest) | set(ranked(metrics, higher_is_better=self.higher_is_better)[: self.keep_best])
