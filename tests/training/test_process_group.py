"""What the first rank of every node does before the process group exists."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
import torch

from tests.engines.ports import free_port
from tests.training.launch.ranks import on_ranks
from training.errors import SettingsError
from training.launch.task import RankPlace
from training.process_group import process_group

SECONDS = 120
_TIMEOUT = 2.0


def _rank(rank: int, local_rank: int, port: int, folder: Path, barrier: Barrier) -> None:
    """A rank of two. Those that are first on their node prepare; rank 1 takes longer than a collective may."""
    place = RankPlace(
        rank=rank, world=2, local_rank=local_rank, local_world=2, master_address="127.0.0.1", master_port=port
    )

    def prepare() -> None:
        if rank == 1:
            time.sleep(2 * _TIMEOUT)  # what is waited for is the time itself
        (folder / f"prepared-{rank}").touch()

    barrier.wait(SECONDS)
    with process_group(place, gpu=False, timeout_seconds=_TIMEOUT, prepare=prepare):
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
    assert total.item() == 2


@pytest.mark.parametrize(
    ("local_ranks", "prepared"),
    [((0, 0), ["prepared-0", "prepared-1"]), ((0, 1), ["prepared-0"])],
    ids=["a rank on each of two nodes", "two ranks on a node"],
)
def test_one_rank_of_every_node_prepares_and_the_others_wait_longer_than_for_a_collective(
    local_ranks: tuple[int, int], prepared: list[str], tmp_path: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    port, barrier = free_port(), context.Barrier(2)
    ranks = [
        context.Process(target=_rank, args=(rank, local_rank, port, tmp_path, barrier))
        for rank, local_rank in enumerate(local_ranks)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(SECONDS)
    assert [one.exitcode for one in ranks] == [0, 0]
    assert sorted(one.name for one in tmp_path.iterdir()) == prepared


def _join(place: RankPlace, codes: Sequence[str]) -> str:
    try:
        with process_group(place, gpu=False, timeout_seconds=3 * _TIMEOUT, code=codes[place.rank]):
            torch.distributed.barrier()  # the store ends with rank 0
            return "joined"
    except SettingsError as error:
        return str(error)
    except RuntimeError:
        return "left alone"


def test_ranks_of_equal_code_join_and_one_with_other_code_than_rank_0_is_refused_with_both_hashes() -> None:
    assert on_ranks(2, _join, ["a" * 64, "a" * 64]) == ["joined", "joined"]
    for codes in (["a" * 64, "b" * 64], ["", "b" * 64]):
        first, second = on_ranks(2, _join, codes)
        assert first == "left alone"
        assert f"rank 1 has {codes[1]}, rank 0 {codes[0] or 'none'}" in second
