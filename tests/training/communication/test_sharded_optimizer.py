"""An optimizer whose state is divided over the ranks: what each keeps, and what a checkpoint has."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.training.communication.test_wire import CPU, adam, network
from tests.training.launch.ranks import on_ranks
from training.config.schema import CommunicationSettings
from training.launch.task import RankPlace
from training.process_group import process_group
from training.strategies.data_parallel import DataParallel

Arrays = dict[str, npt.NDArray[np.float32]]


def arrays(state: dict[str, Any]) -> Arrays:
    return {name: value.numpy().copy() for name, value in state.items() if isinstance(value, Tensor)}


def _states(place: RankPlace, *, loaded: Arrays | None) -> tuple[Arrays, Arrays, int]:
    """The optimizer's state of plain DDP and of a sharded one, whole, and the values of it that this rank keeps.

    Both have trained two steps, or have loaded a state.
    """
    torch.set_num_threads(1)
    with process_group(place, gpu=False, timeout_seconds=120):
        found = []
        for is_sharded in (False, True):
            settings = CommunicationSettings(shard_optimizer=is_sharded)
            strategy = DataParallel(network(), adam, device=CPU, communication=settings)
            state = strategy.states()["optimizer"]
            if loaded is not None:
                state.load_state_dict({"class": "Adam", **{name: torch.tensor(one) for name, one in loaded.items()}})
            for step in (1, 2) if loaded is None else ():
                strategy.optimizer.zero_grad()
                own = torch.randn(4, 64, generator=torch.Generator().manual_seed(10 * step + place.rank))
                strategy.model(own).square().sum().backward()
                strategy.optimizer.step()
            found.append(arrays(state.state_dict()))
        local = strategy.optimizer.optim.state.values()  # type: ignore[attr-defined]
        kept = sum(value.numel() for moments in local for value in moments.values())
        dist.barrier()
        return found[0], found[1], kept


@pytest.fixture(scope="module")
def two_steps() -> list[tuple[Arrays, Arrays, int]]:
    """What each of two ranks has after two steps."""
    return on_ranks(2, _states, loaded=None)


def test_a_checkpoint_has_the_state_that_plain_ddp_would_have(two_steps: list[tuple[Arrays, Arrays, int]]) -> None:
    plain, sharded, _ = two_steps[0]
    assert plain.keys() == sharded.keys()
    torch.testing.assert_close(sharded, plain, rtol=0, atol=0)


def test_each_rank_keeps_about_its_share(two_steps: list[tuple[Arrays, Arrays, int]]) -> None:
    """The largest weight has three quarters of the values, and is not divided."""
    kept = [one for *_, one in two_steps]
    plain, *_ = two_steps[0]
    assert sum(kept) == sum(value.size for value in plain.values())
    assert max(kept) <= 2 * (32 * 576 + 1)


def test_another_number_of_ranks_loads_the_state_bit_for_bit(two_steps: list[tuple[Arrays, Arrays, int]]) -> None:
    _, saved, _ = two_steps[0]
    _, sharded, _ = on_ranks(3, _states, loaded=saved)[0]
    torch.testing.assert_close(sharded, saved, rtol=0, atol=0)
