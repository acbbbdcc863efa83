"""How many workers a run trains on, from what there is: pure functions of the workers and of the room for more.

A run of a fixed number of workers waits until it has them. An elastic run trains on as many as it can have, within its range and among
the numbers that divide its batch: it starts further workers where there is room, continues on them once they are ready, and continues on
fewer when some are lost or about to go. Every change of mind costs it a commit and a restart of the ranks, no step.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.config.resize import fitting_workers
from training.config.schema import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers of workers that a run may have.

    Attributes:
        fitting: the numbers, ascending, at least one.
    """

    fitting: tuple[int, ...]

    @classmethod
    def of(cls, settings: TrainingSettings) -> Sizes:
        """The sizes that the settings of a run allow."""
        scale = settings.scale
        if not scale.is_elastic:
            return cls(fitting=(scale.workers,))
        least = scale.min_workers or 1
        return cls(fitting=tuple(number for number in fitting_workers(settings) if least <= number <= scale.workers))

    def limited(self, most: int | None) -> Sizes:
        """Those of at most `most` workers, or the smallest; all without a limit."""
        if most is None:
            return self
        return Sizes(fitting=tuple(number for number in self.fitting if number <= most) or self.fitting[:1])

    @property
    def least(self) -> int:
        """The smallest."""
        return self.fitting[0]

    @property
    def most(self) -> int:
        """The largest."""
        return self.fitting[-1]

    def within(self, workers: int) -> int | None:
        """The largest number of at most `workers`; None if all are larger."""
        return max((number for number in self.fitting if number <= workers), default=None)


@dataclass(frozen=True, kw_only=True)
class Supply:
    """The workers that a run has, and could have.

    Attributes:
        staying: that are ready, on nodes that stay.
        starting: that were asked for, and are not ready.
        room: that could be started at once besides.
    """

    staying: int
    starting: int = 0
    room: int = 0


def workers_to_start(sizes: Sizes, supply: Supply) -> int:
    """How many workers to ask for, besides those that are starting.

    Where there is room for too few, the least number of them is asked for all the same: the cluster may get the nodes.
    """
    have = supply.staying + supply.starting
    wanted = sizes.within(have + supply.room) or sizes.least
    return max(0, wanted - have)


def can_start(sizes: Sizes, supply: Supply, *, waits_for_all: bool) -> int | None:
    """The number of workers to begin an attempt with; None to wait.

    Args:
        sizes: that the run may have.
        supply: what there is.
        waits_for_all: of the workers that are starting; otherwise they are added later.
    """
    if waits_for_all and supply.starting and supply.staying < sizes.most:
        return None
    return sizes.within(supply.staying)


def can_grow(sizes: Sizes, supply: Supply, *, world: int) -> bool:
    """Whether an attempt on `world` workers should make way for one on more, and no more of them are about to be ready."""
    return not supply.starting and (sizes.within(supply.staying) or 0) > world


def can_leave(sizes: Sizes, supply: Supply, *, world: int) -> bool:
    """Whether an attempt that has workers on nodes that are about to go can continue without them, on as many."""
    return (sizes.within(supply.staying) or 0) >= world
