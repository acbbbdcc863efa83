"""Which share of the samples a rank reads. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataPlace:
    """A rank's place among those that divide the samples of a step.

    Usually every rank reads its own samples. The ranks of one pipeline read the same ones: the first stage needs their inputs, the
    last one their targets.

    Attributes:
        rank: number of the share, 0 <= rank < world.
        world: number of shares.
        is_recorder: this rank records the share's samples, of all ranks that read it.
    """

    rank: int
    world: int
    is_recorder: bool = True

    @classmethod
    def of(cls, *, rank: int, world: int, ranks_per_share: int) -> DataPlace:
        """The place of a rank of the process group, of which so many consecutive ranks read the same samples.

        Raises:
            ValueError: `ranks_per_share` does not divide the world.
        """
        if world % ranks_per_share:
            raise ValueError(f"{ranks_per_share} ranks per share do not divide a world of {world}")
        return cls(
            rank=rank // ranks_per_share, world=world // ranks_per_share, is_recorder=rank % ranks_per_share == 0
        )
