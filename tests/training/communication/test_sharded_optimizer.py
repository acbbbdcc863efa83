"""An optimizer whose state is divided over the ranks: what each keeps, and what a checkpoint has."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tests.training.communication.test_wire import CPU, adam, network
from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.config.schema import CommunicationSettings
from training.launch.task import RankPlace
from training.strategies.data_parallel import DataParallel

Arrays = dict[str, npt.NDArray[np.float32]]


def arrays(state: dict[str, Any]) -> Arrays:
    return {name: value.numpy().copy() for name, value in state.items() if isinstance(value, Tensor)}


def _states(place: RankPlace, *, loaded: Arrays | None) -> tuple[Arrays, Arrays, int]:
    """The optimizer's state of plain DDP and of a sharded one, whole, and the values of it that this rank keeps.

    Both have trained two steps, or have loaded a state.
    """
    with in_group(place):
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
        return found[0], found[1], kept


def test_a_checkpoint_has_the_state_of_plain_ddp_of_which_each_rank_keeps_about_its_share() -> None:
    """The largest weight has three quarters of the values, and is not divided. Another number of ranks loads it bit for bit."""
    ranks = on_ranks(2, _states, loaded=None)
    plain, saved, _ = ranks[0]
    assert plain.keys() == saved.keys()
    torch.testing.assert_close(saved, plain, rtol=0, atol=0)
    kept = [one for *_, one in ranks]
    assert sum(kept) == sum(value.size for value in plain.values())
    assert max(kept) <= 2 * (32 * 576 + 1)
    _, loaded, _ = on_ranks(3, _states, loaded=saved)[0]
    torch.testing.assert_close(loaded, saved, rtol=0, atol=0)
