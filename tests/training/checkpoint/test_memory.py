"""The state in the memory of ranks: which one is restored, and how it gets to ranks without it. Real processes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.limits import files_up_to
from tests.training.checkpoint.parts import IDENTITY, SmallRun, progress
from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.checkpoint.memory import RankMemory
from training.launch.task import RankPlace


def memory_of(folder: Path, *, step: int | None) -> RankMemory:
    """The memory of a process that has the state after a step, or none."""
    memory = RankMemory(folder)
    memory.serve(folder.parent)
    if step is not None:
        run = SmallRun()
        run.train(step)
        memory.keep(progress(step), run.states(), IDENTITY)
    return memory


def chosen(
    place: RankPlace, folder: Path, *, steps: tuple[int | None, ...], committed: int = -1, full: int | None = None
) -> tuple[int, int] | None:
    """Step and source of the state that a rank finds; `steps` is what each rank has, `full` a rank that cannot write it."""
    with in_group(place):
        memory = memory_of(folder / str(place.rank), step=steps[place.rank])
        with files_up_to(16) if place.rank == full else nullcontext():
            found = memory.newest(IDENTITY, committed=committed if place.rank == 0 else -1)
    return None if found is None else (found[0].progress.step, found[1])


@pytest.mark.parametrize(
    ("steps", "committed", "full", "expected"),
    [
        pytest.param((3, None), -1, None, (3, 0), id="one rank lost it"),
        pytest.param((None, 4), 2, None, (4, 1), id="rank 0 is new"),
        pytest.param((2, 4), 4, None, (4, 1), id="the newer one, as new as the checkpoint"),
        pytest.param((3, 3), 5, None, None, id="the checkpoint is newer"),
        pytest.param((None, None), 1, None, None, id="none has it"),
        pytest.param((None, 3), -1, 0, None, id="one rank has no room for it"),
    ],
)
def test_all_ranks_get_the_newest_state_that_one_of_them_has(
    tmp_path: Path, steps: tuple[int | None, ...], committed: int, full: int | None, expected: tuple[int, int] | None
) -> None:
    assert on_ranks(2, chosen, tmp_path, steps=steps, committed=committed, full=full) == [expected, expected]


def test_a_single_rank_needs_no_process_group_and_drops_the_state_of_another_run(tmp_path: Path) -> None:
    memory = memory_of(tmp_path / "memory", step=2)
    found = memory.newest(IDENTITY, committed=1)
    assert found is not None
    assert (found[0].progress.step, found[1]) == (2, 0)
    memory.serve(tmp_path)
    assert memory.step == 2
    memory.serve(tmp_path / "other")
    assert memory.step is None
