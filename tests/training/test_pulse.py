"""The one all-reduce of a step: sums over ranks, read a step later, by all alike."""

from __future__ import annotations

import torch

from tests.training.launch.ranks import on_ranks
from training.launch.task import RankPlace
from training.pulse import Pulse, PulseSums
from training.worker import joined


def _sums(place: RankPlace, *, votes: list[bool]) -> list[PulseSums]:
    """Two steps of a rank: in step k rank r has loss 10 k + r, r + 1 right of r + 2 samples, and took r + 0.5 seconds."""
    torch.set_num_threads(1)
    with joined(place, gpu=False, timeout_seconds=30):
        pulse = Pulse(rank=place.rank, world=place.world, device=torch.device("cpu"))
        found = []
        for step, vote in enumerate(votes, start=1):
            pulse.start(
                loss_sum=torch.tensor(10.0 * step + place.rank),
                correct=torch.tensor(place.rank + 1),
                samples=place.rank + 2,
                wants_stop=vote and place.rank == place.world - 1,
                seconds=place.rank + 0.5,
            )
            found.append(pulse.wait())
        return found


def test_a_world_of_one_reads_its_own_numbers() -> None:
    place = RankPlace(rank=0, world=1, local_rank=0, local_world=1, master_address="", master_port=0)
    (sums,) = _sums(place, votes=[True])
    assert sums == PulseSums(loss_sum=10, correct=1, samples=2, stop_votes=1, rank_seconds=[0.5])


def test_two_ranks_read_the_same_sums_and_each_others_seconds() -> None:
    first, second = on_ranks(2, _sums, votes=[False, False])
    assert first == second
    assert first[0] == PulseSums(loss_sum=21, correct=3, samples=5, stop_votes=0, rank_seconds=[0.5, 1.5])
    assert first[1].loss_sum == 41


def test_the_vote_of_one_rank_reaches_all_at_the_same_step() -> None:
    for sums in on_ranks(2, _sums, votes=[False, True]):
        assert [one.stop_votes for one in sums] == [0, 1]
