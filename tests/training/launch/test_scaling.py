"""Decisions about ranks: how many there are, which node each is on, and when they leave a node. Pure functions."""

from __future__ import annotations

import math

from tests.training.runs import small_settings
from training.launch.agent.messages import Hello
from training.launch.agent.places import in_rank_order, local_ranks
from training.launch.drain import DrainNotice, leaves_at
from training.launch.scaling import Sizes, Supply, can_grow, can_leave, can_start, workers_to_start

NOW = 1000.0
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


def notice(*, deadline: float = NOW + 120, has_replacements: bool) -> DrainNotice:
    return DrainNotice(ranks=(1,), deadline=deadline, has_replacements=has_replacements)


def test_ranks_leave_at_once_or_three_checkpoints_and_a_reserve_before_the_end_if_nothing_replaces_them() -> None:
    for seconds in (20, 120, 3600):
        ready = notice(deadline=NOW + seconds, has_replacements=True)
        assert leaves_at(ready, now=NOW, save_seconds=10) == NOW, seconds
    assert leaves_at(notice(has_replacements=False), now=NOW, save_seconds=10) == NOW + 120 - 30 - 5
    too_short = notice(deadline=NOW + 20, has_replacements=False)
    at_any_time = notice(deadline=math.inf, has_replacements=False)
    for urgent in (too_short, at_any_time):
        assert leaves_at(urgent, now=NOW, save_seconds=10) == NOW


def test_the_agents_of_a_node_have_consecutive_ranks_and_the_first_one_is_rank_0() -> None:
    agents = [Hello(worker=str(number), host=f"host of {node}", node=node) for number, node in enumerate("babca")]
    ordered = in_rank_order(agents)
    assert [agent.worker for agent in ordered] == ["0", "2", "1", "4", "3"]
    assert local_ranks(ordered) == [(0, 2), (1, 2), (0, 2), (1, 2), (0, 1)]


def test_without_ray_the_address_tells_nodes_apart() -> None:
    found = [Hello(worker=str(number), host=host) for number, host in enumerate(["10.0.0.1", "10.0.0.2", "10.0.0.1"])]
    assert [agent.worker for agent in in_rank_order(found)] == ["0", "2", "1"]
