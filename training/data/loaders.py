"""The loaders of a rank, as the settings say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import torch

from training.config.schema import TrainingSettings
from training.data.loader import NO_WATCH, EvalLoader, TrainLoader
from training.data.order import BatchPlan
from training.data.place import DataPlace
from training.data.reading import Check
from training.data.types import Split


class RankLoaders:
    """Makes the loaders of a rank's share of each split."""

    def __init__(
        self,
        settings: TrainingSettings,
        share: DataPlace,
        device: torch.device,
        *,
        code: Path | None,
        waiting: AbstractContextManager[object] = NO_WATCH,
        check: Check | None = None,
    ) -> None:
        """Prepare to read.

        Args:
            settings: of the run.
            share: of the samples.
            device: of this rank.
            code: folder of the run's own code, which may have the dataset; None without.
            waiting: entered while a batch is waited for.
            check: of the targets that are read.
        """
        self._settings = settings
        self._share = share
        self._code = code
        self._waiting = waiting
        self._check = check
        # None leaves the copy to the step.
        self._copy_to = device if device.type == "cuda" and settings.data.pin_memory else None

    def training(self, split: Split, plan: BatchPlan, *, has_own_targets: bool = True) -> TrainLoader:
        """The loader of the training split, in the order and the division of `plan`; mixed samples have no targets of the dataset."""
        data = self._settings.data
        make: Callable[..., TrainLoader] = TrainLoader if data.reader == "loader" else self._ray_data_loader()
        return make(
            split,
            plan=plan,
            seed=self._settings.run.seed,
            rank=self._share.rank,
            loader_workers=data.loader_workers,
            prefetch=data.prefetch,
            augment=data.augment,
            equal_rows=self._settings.strategy.name == "pipeline",
            copy_to=self._copy_to,
            waiting=self._waiting,
            check=self._check if has_own_targets else None,
        )

    def evaluation(self, split: Split) -> EvalLoader:
        """The loader of a split that is evaluated."""
        return EvalLoader(
            split,
            batch=self._settings.loop.evaluation_batch,
            rank=self._share.rank,
            world=self._share.world,
            loader_workers=self._settings.data.loader_workers,
            prefetch=self._settings.data.prefetch,
            copy_to=self._copy_to,
            waiting=self._waiting,
            check=self._check,
        )

    def _ray_data_loader(self) -> Callable[..., TrainLoader]:
        from training.data.ray_reader import RayDataLoader  # noqa: PLC0415 - imports Ray Data, which takes seconds

        scale = self._settings.scale
        return partial(RayDataLoader, rank_cpus=scale.workers * scale.cpus_per_worker, code=self._code)
