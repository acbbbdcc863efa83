"""State of communication: that of PowerSGD, and an optimizer's that is divided over the ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import SGD

from tests.training.communication.test_wire import CPU, POWERSGD, adam, backward, distributed, network
from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.checkpoint.sharding import whole
from training.communication.powersgd import PowerSgd
from training.config.schema import CommunicationSettings
from training.errors import SettingsError
from training.launch.task import RankPlace
from training.strategies.data_parallel import DataParallel

Array = npt.NDArray[np.float32]

SETTINGS = CommunicationSettings(bucket_megabytes=0.02, **POWERSGD)
STEPS = 6


def do_step(
    place: RankPlace, strategy: DataParallel, powersgd: PowerSgd, step: int, *, scale: float = 1.0, factor: float = 1.0
) -> list[Array]:
    """The unscaled gradients of a step; `factor` of infinity makes rank 1's infinite, and the step is not applied."""
    strategy.optimizer.zero_grad()
    inputs = torch.randn(4, 64, generator=torch.Generator().manual_seed(10 * step + place.rank))
    loss = strategy.model(inputs).square().sum() * (factor if place.rank == 1 else 1.0)
    backward(strategy, powersgd, step, loss, scale=scale)
    found = [(p.grad / scale).numpy() for p in strategy.module.parameters() if p.grad is not None]
    powersgd.end_step(applied=all(np.isfinite(one).all() for one in found))
    return found


def _gradients_with_a_skipped_step(place: RankPlace, *, bad_step: int | None) -> tuple[list[Array], dict[str, Array]]:
    """The gradients of the last step, and the errors of all ranks on rank 0."""
    with in_group(place):
        strategy, found = distributed(SETTINGS, undoes=True)
        assert found is not None
        for step in range(1, STEPS + 1):
            if step == bad_step:
                bad = do_step(place, strategy, found, step, factor=float("inf"))
                assert not any(np.isfinite(one).all() for one in bad)
            last = do_step(place, strategy, found, step)
        state = {
            key: whole(value).numpy().copy() for key, value in found.state_dict().items() if isinstance(value, Tensor)
        }
        return last, state


def test_a_step_with_an_infinite_gradient_leaves_the_errors_as_they_were() -> None:
    """The first compressed one, and a later one."""
    healthy, *skipped = (on_ranks(2, _gradients_with_a_skipped_step, bad_step=one) for one in (None, 3, 5))
    for ranks in skipped:
        for (first, state), (second, other) in zip(healthy, ranks, strict=True):
            torch.testing.assert_close(second, first, rtol=0, atol=0)
            torch.testing.assert_close(other, state, rtol=0, atol=0)
    errors = healthy[0][1]["error/4.weight"]
    assert errors.shape == (2, 32, 576)
    assert (errors[0] != errors[1]).any()
    assert healthy[0][1]["factor/4.weight"].shape == (576, 2)


def _gradients_of_scales(place: RankPlace, *, scales: list[float]) -> list[list[Array]]:
    with in_group(place):
        strategy, found = distributed(SETTINGS)
        assert found is not None
        return [do_step(place, strategy, found, step, scale=scale) for step, scale in enumerate(scales, 1)]


def test_errors_follow_the_scale_of_the_loss() -> None:
    """A gradient scaler halves and doubles its scale between steps."""
    plain, scaled = (
        on_ranks(2, _gradients_of_scales, scales=one) for one in ([1.0] * STEPS, [1024.0, 512, 512, 256, 4096, 4096])
    )
    torch.testing.assert_close(scaled, plain, rtol=1e-3, atol=1e-3)


def _mean_error(place: RankPlace) -> None:
    """Every rank loads what three ranks have saved."""
    with in_group(place):
        _, found = distributed(SETTINGS)
        assert found is not None
        of_three = torch.arange(3.0)[:, None, None].expand(3, 48, 32)
        found.load_state_dict({"scale": 2.0, "error/6.weight": of_three})
        state = found.state_dict()
        assert state["scale"] == 2.0
        torch.testing.assert_close(state["error/6.weight"].full_tensor(), torch.ones(2, 48, 32))


def test_state_of_another_number_of_ranks_is_loaded_as_its_mean() -> None:
    on_ranks(2, _mean_error)


def _channels_last(place: RankPlace) -> None:
    """The error of a convolution has the order of its weight, whatever the memory order of the gradient."""
    with in_group(place):
        errors = []
        for memory in (torch.contiguous_format, torch.channels_last):
            torch.manual_seed(0)
            module = nn.Conv2d(16, 32, 3).to(memory_format=memory)
            powersgd = PowerSgd(CommunicationSettings(**POWERSGD, min_compression_rate=1), seed=0, undoes=False)
            strategy = DataParallel(
                module, lambda it: SGD(it.parameters(), lr=0.1), device=CPU, communication=SETTINGS, powersgd=powersgd
            )
            of_one = torch.randn(2, 16, 5, 5, generator=torch.Generator().manual_seed(place.rank))
            backward(strategy, powersgd, 3, strategy.model(of_one).square().mean())
            assert module.weight.grad is not None
            sent = module.weight.grad.clone()
            module.zero_grad()
            module(of_one).square().mean().backward()
            error = powersgd.state_dict()["error/weight"].to_local()[0]
            errors.append((module.weight.grad - sent) - error)
        dist.barrier()
        for difference in errors:
            torch.testing.assert_close(difference, torch.zeros_like(difference), atol=1e-6, rtol=0)


def test_an_error_is_what_was_not_sent_in_the_order_of_its_weight() -> None:
    on_ranks(2, _channels_last)


class _WithScalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.layer = nn.Linear(4, 4)


def _refusal(place: RankPlace) -> str:
    with in_group(place):
        powersgd = PowerSgd(SETTINGS, seed=0, undoes=False)
        with pytest.raises(SettingsError) as refused:
            DataParallel(
                _WithScalar(),
                lambda it: SGD(it.parameters(), lr=0.1),
                device=CPU,
                communication=SETTINGS,
                powersgd=powersgd,
            )
        return str(refused.value)


def test_a_weight_without_a_dimension_is_refused() -> None:
    assert all("weight temperature of the model has no dimension" in message for message in on_ranks(2, _refusal))


Arrays = dict[str, npt.NDArray[np.float32]]


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
            tensors = {name: value for name, value in state.state_dict().items() if isinstance(value, Tensor)}
            found.append({name: value.numpy().copy() for name, value in tensors.items()})
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
