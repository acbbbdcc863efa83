"""What ranks tell each other of their steps: sums of a window, and the communication that a slow peer exposes."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable

from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from tests.training.test_step import batch, runner_of
from training.exposed_communication import when_gradients_are_computed
from training.launch.task import RankPlace
from training.step import StepResult
from training.step_reducer import WINDOW_SECONDS, RankUsage, StepReducer, StepSums, Window
from training.strategies.data_parallel import DataParallel

ALONE = RankPlace(rank=0, world=1, local_rank=0, local_world=1, master_address="", master_port=0)


def _add(reducer: StepReducer, place: RankPlace, step: int, *, seconds: float = WINDOW_SECONDS) -> None:
    """In step k rank r has loss 10 k + r, r + 1 right of r + 2 samples of weight r + 2.5, took r + 0.5 seconds and waited r + 0.25."""
    reducer.add(
        sums=[10.0 * step + place.rank, place.rank + 1],
        weight=place.rank + 2.5,
        samples=place.rank + 2,
        own_seconds=place.rank + 0.5,
        communication_seconds=place.rank + 0.25,
        seconds=seconds,
    )


def _windows(place: RankPlace, *, lengths: list[int], votes: list[bool]) -> list[Window]:
    """Windows of the given lengths; the last rank votes at their ends."""
    with in_group(place):
        reducer = StepReducer(rank=place.rank, world=place.world, device=torch.device("cpu"))
        found = []
        step = 0
        for length, vote in zip(lengths, votes, strict=True):
            for _ in range(length):
                step += 1
                _add(reducer, place, step)
            found.append(reducer.reduce(wants_stop=vote and place.rank == place.world - 1))
        return found


def _steps_until_due(place: RankPlace, *, step_seconds: list[float]) -> list[int]:
    """Lengths of successive windows for their steps' seconds; other ranks than 0 report a hundred times that."""
    with in_group(place):
        reducer = StepReducer(rank=place.rank, world=place.world, device=torch.device("cpu"))
        lengths = []
        for seconds in step_seconds:
            length = 0
            while not reducer.is_due:
                length += 1
                _add(reducer, place, length, seconds=seconds if place.rank == 0 else 100 * seconds)
            reducer.reduce(wants_stop=False)
            lengths.append(length)
        return lengths


def test_a_world_of_one_reads_its_own_numbers() -> None:
    (window,) = _windows(ALONE, lengths=[1], votes=[True])
    assert window == Window(
        steps=[StepSums(sums=[10, 1], weight=2.5, samples=2, rank_seconds=[0.5])],
        ranks=[RankUsage(communication_seconds=0.25, pass_order=0, gpu=None)],
        seconds=WINDOW_SECONDS,
        stop_votes=1,
    )


def test_two_ranks_read_the_same_sums_seconds_and_votes_of_each_step() -> None:
    first, second = on_ranks(2, _windows, lengths=[1, 3], votes=[False, True])
    assert first == second
    assert [[step.sums[0] for step in window.steps] for window in first] == [[21], [41, 61, 81]]
    assert first[0].steps[0] == StepSums(sums=[21, 3], weight=6.0, samples=5, rank_seconds=[0.5, 1.5])
    waited = [[rank.communication_seconds for rank in window.ranks] for window in first]
    assert waited == [[0.25, 1.25], [0.75, 3.75]]
    assert [window.seconds for window in first] == [WINDOW_SECONDS, 3 * WINDOW_SECONDS]
    assert [window.stop_votes for window in first] == [0, 1]


def _asked(place: RankPlace, *, numbers: list[int]) -> list[int]:
    """What the ranks asked of each other in a window: rank r for its numbers times r + 1."""
    with in_group(place):
        reducer = StepReducer(rank=place.rank, world=place.world, device=torch.device("cpu"))
        _add(reducer, place, 1)
        return reducer.reduce(wants_stop=False, asks=[number * (place.rank + 1) for number in numbers]).asked


def test_what_a_rank_asks_for_reaches_all_as_a_sum() -> None:
    assert on_ranks(2, _asked, numbers=[0, 5, 7]) == [[0, 15, 21]] * 2


def test_short_steps_share_a_window_and_a_long_one_has_its_own() -> None:
    seconds = [WINDOW_SECONDS / part for part in (10, 10, 0.5, 4)]
    assert _steps_until_due(ALONE, step_seconds=seconds) == [1, 10, 10, 1]


def test_ranks_whose_clocks_differ_close_a_window_at_the_same_step() -> None:
    first, second = on_ranks(2, _steps_until_due, step_seconds=[WINDOW_SECONDS / 7.5, WINDOW_SECONDS / 3.5, 1.0])
    assert first == second == [1, 7, 3]


CPU = torch.device("cpu")
PAUSE = 0.5
"""Seconds that the slow rank takes longer."""


class _Model(nn.Module):
    def __init__(self, in_backward: Callable[[], object]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.in_backward = in_backward

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        if hidden.requires_grad:
            hidden.register_hook(lambda _: self.in_backward())
        outputs: Tensor = self.second(hidden)
        return outputs


def _step(place: RankPlace, *, micro_batches: int) -> StepResult:
    """A step in which rank 1 goes on with its last backward pass only after rank 0 has all its own gradients, and then pauses."""
    torch.set_num_threads(1)
    passes = 0

    def in_backward() -> None:
        nonlocal passes
        passes += 1
        if passes < micro_batches:
            return
        store = dist.distributed_c10d._get_default_store()
        if place.rank == 0:
            # Queued after the step's own callback, and before the one of DDP that waits.
            Variable._execution_engine.queue_callback(lambda: store.set("rank 0 waits", ""))
        else:
            store.wait(["rank 0 waits"])
            time.sleep(PAUSE)

    with in_group(place):
        strategy = DataParallel(_Model(in_backward), lambda m: torch.optim.SGD(m.parameters(), lr=1.0), device=CPU)
        runner = runner_of(strategy, rank=place.rank, world=place.world)
        return runner.run(1, [batch(4 * micro, 4) for micro in range(micro_batches)], global_count=8 * micro_batches)


def test_a_slow_peer_is_communication_of_the_rank_that_waits_and_work_of_its_own() -> None:
    first, second = on_ranks(2, _step, micro_batches=2)
    assert first.communication_seconds >= PAUSE
    assert second.backward_seconds >= PAUSE


def test_the_callback_runs_once_when_all_gradients_are_there() -> None:
    weight = torch.ones(3, requires_grad=True)
    seen: list[Tensor | None] = []
    loss = (weight * 2).sum()
    when_gradients_are_computed(loss, lambda: seen.append(weight.grad))
    loss.backward()  # type: ignore[no-untyped-call]
    assert len(seen) == 1
    assert seen[0] is not None
    assert seen[0].tolist() == [2.0, 2.0, 2.0]
