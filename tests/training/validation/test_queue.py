"""Which checkpoint is validated next."""

from __future__ import annotations

from training.validation.queue import ValidationQueue


def test_a_step_runs_at_once_and_the_next_one_after_it() -> None:
    queue = ValidationQueue()
    assert [queue.add(step) for step in (1, 2)] == [None, None]
    assert (queue.running, queue.waiting) == (1, 2)
    assert [queue.finish(), queue.finish()] == [2, None]


def test_of_the_steps_that_wait_the_newest_one_remains() -> None:
    queue = ValidationQueue()
    assert [queue.add(step) for step in (1, 2, 3, 4)] == [None, None, 2, 3]
    assert queue.clear() == [1, 4]
    assert queue.add(5) is None
