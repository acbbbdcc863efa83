"""Which share of the samples a rank reads."""

from __future__ import annotations

import pytest

from training.data.place import DataPlace


def test_the_first_rank_of_those_that_share_samples_records_them() -> None:
    def places(*, world: int, ranks_per_share: int) -> list[tuple[int, int, bool]]:
        ranks = (DataPlace.of(rank=rank, world=world, ranks_per_share=ranks_per_share) for rank in range(world))
        return [(place.rank, place.world, place.is_recorder) for place in ranks]

    assert places(world=3, ranks_per_share=1) == [(0, 3, True), (1, 3, True), (2, 3, True)]
    assert places(world=4, ranks_per_share=2) == [(0, 2, True), (0, 2, False), (1, 2, True), (1, 2, False)]


def test_groups_of_unequal_size_are_an_error() -> None:
    with pytest.raises(ValueError, match="3 ranks per share do not divide a world of 4"):
        DataPlace.of(rank=0, world=4, ranks_per_share=3)
