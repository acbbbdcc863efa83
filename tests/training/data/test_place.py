"""Which share of the samples a rank reads."""

from __future__ import annotations

import pytest

from training.data.place import DataPlace


def test_usually_every_rank_reads_and_records_its_own_samples() -> None:
    assert [DataPlace.of(rank=rank, world=3, ranks_per_share=1) for rank in range(3)] == [
        DataPlace(rank=rank, world=3) for rank in range(3)
    ]


def test_neighbours_read_the_same_samples_and_the_first_records_them() -> None:
    places = [DataPlace.of(rank=rank, world=4, ranks_per_share=2) for rank in range(4)]
    assert [(place.rank, place.world, place.is_recorder) for place in places] == [
        (0, 2, True),
        (0, 2, False),
        (1, 2, True),
        (1, 2, False),
    ]


def test_groups_of_unequal_size_are_an_error() -> None:
    with pytest.raises(ValueError, match="3 ranks per share do not divide a world of 4"):
        DataPlace.of(rank=0, world=4, ranks_per_share=3)
