"""How many workers a run asks for, begins with, and changes to."""

from __future__ import annotations

from tests.training.runs import small_settings
from training.launch.scaling import Sizes, Supply, can_grow, can_leave, can_start, workers_to_start

FIXED = Sizes(fitting=(4,))
ELASTIC = Sizes(fitting=(2, 4, 8))


def test_the_sizes_of_a_run_divide_its_batch_and_a_limit_leaves_at_least_the_smallest() -> None:
    """Of 64 samples."""
    table: list[tuple[int | str, tuple[int, ...]]] = [
        (4, (4,)), ("2-8", (2, 4, 8)), ("3-8", (4, 8)), ("1-2", (1, 2)), ("4-4", (4,))
    ]  # fmt: skip
    for workers, fitting in table:
        assert Sizes.of(small_settings(scale={"launcher": "ray", "workers": workers})).fitting == fitting
    for most, fitting in ((None, (2, 4, 8)), (8, (2, 4, 8)), (5, (2, 4)), (2, (2,)), (1, (2,))):
        assert ELASTIC.limited(most).fitting == fitting


def test_workers_are_asked_for_where_they_can_be_used() -> None:
    for sizes, supply, expected, why in (
        (FIXED, Supply(staying=0), 4, "all of a fixed run"),
        (FIXED, Supply(staying=3), 1, "one in place of a lost one"),
        (FIXED, Supply(staying=3, starting=1), 0, "which is starting"),
        (ELASTIC, Supply(staying=0, room=8), 8, "as many as there is room for"),
        (ELASTIC, Supply(staying=0, room=7), 4, "of those that fit"),
        (ELASTIC, Supply(staying=2, room=1), 0, "no third one, which could do nothing"),
        (ELASTIC, Supply(staying=2, room=2), 2, "room for more"),
        (ELASTIC, Supply(staying=1, room=0), 1, "the least, although there is no room"),
        (ELASTIC, Supply(staying=0, starting=2, room=0), 0, "the least is starting"),
    ):
        assert workers_to_start(sizes, supply) == expected, why


def test_an_attempt_begins_with_the_workers_that_are_ready() -> None:
    for supply, waits_for_all, expected, why in (
        (Supply(staying=4, starting=4), True, None, "a run begins with all that are starting"),
        (Supply(staying=8, starting=1), True, 8, "and with no more than it can have"),
        (Supply(staying=4), True, 4, "no more are coming"),
        (Supply(staying=5, starting=3), False, 4, "a later attempt goes on with those that it has"),
        (Supply(staying=1, starting=3), False, None, "unless they are too few"),
    ):
        assert can_start(ELASTIC, supply, waits_for_all=waits_for_all) == expected, why


def test_a_run_grows_once_for_all_workers_that_are_coming() -> None:
    assert can_grow(ELASTIC, Supply(staying=4), world=2)
    for supply in (Supply(staying=3), Supply(staying=4, starting=4), Supply(staying=2)):
        assert not can_grow(ELASTIC, supply, world=2), supply


def test_a_run_leaves_nodes_early_if_it_goes_on_with_as_many_workers() -> None:
    assert can_leave(FIXED, Supply(staying=4), world=4)
    assert not can_leave(FIXED, Supply(staying=3, starting=1), world=4)
    assert not can_leave(ELASTIC, Supply(staying=3), world=4)
