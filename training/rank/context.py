"""Which rank of which attempt this process is, and where its reports go."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from observability.runlog import Emit, Notice, Phase
from training.config.schema import TrainingSettings
from training.data.place import DataPlace
from training.device import rank_device
from training.launch.task import RankPlace, RankTask

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """One rank of one attempt.

    Attributes:
        task: the attempt.
        place: the rank in the process group.
        device: on which it trains.
        share: which samples it reads.
        emit: accepts events; those of ranks other than 0 are dropped.
    """

    task: RankTask
    place: RankPlace
    device: torch.device
    share: DataPlace
    emit: Emit

    @classmethod
    def of(cls, task: RankTask, place: RankPlace, *, emit: Emit) -> RankContext:
        """The context of a rank, whose device and samples follow from the settings and its place."""
        return cls(
            task=task,
            place=place,
            device=rank_device(task.settings.scale, index=place.gpu_index),
            share=DataPlace.of(
                rank=place.rank,
                world=place.world,
                ranks_per_share=task.settings.strategy.ranks_per_share if place.world > 1 else 1,
            ),
            emit=emit,
        )

    @property
    def settings(self) -> TrainingSettings:
        """The settings of the run."""
        return self.task.settings

    def report(self, line: str) -> None:
        """Tell the user something: to the rank's log and, from rank 0, to the run's events."""
        logger.info("%s", line)
        self.emit(Notice(level="warning" if line.startswith("warning: ") else "info", message=line))

    def phase(self, name: str) -> None:
        """Report that a phase of the start-up begins."""
        self.emit(Phase(name=name, process="rank 0"))
