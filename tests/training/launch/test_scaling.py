"""How many workers a run asks for, begins with, and changes to."""

from __future__ import annotations

import pytest

from tests.training.runs import small_settings
from training.launch.scaling import Sizes, Supply, can_grow, can_leave, can_start, workers_to_start

FIXED = Sizes(fitting=(4,))
ELASTIC = Sizes(fitting=(2, 4, 8))


@pytest.mark.parametrize(
    ("workers", "fitting"), [(4, (4,)), ("2-8", (2, 4, 8)), ("3-8", (4, 8)), ("1-2", (1, 2)), ("4-4", (4,))]
)
def test_the_sizes_of_a_run_divide_its_batch(workers: int | str, fitting: tuple[int, ...]) -> None:
    """Of 64 samples."""
    settings = small_settings(scale={"launcher": "ray", "workers": workers})
    assert Sizes.of(settings).fitting == fitting


@pytest.mark.parametrize(("most", "fitting"), [(None, (2, 4, 8)), (8, (2, 4, 8)), (5, (2, 4)), (2, (2,)), (1, (2,))])
def test_a_limit_leaves_at_least_the_smallest_size(most: int | None, fitting: tuple[int, ...]) -> None:
    assert ELASTIC.limited(most).fitting == fitting


@pytest.mark.parametrize(
    ("sizes", "supply", "expected"),
    [
        pytest.param(FIXED, Supply(staying=0), 4, id="all of a fixed run"),
        pytest.param(FIXED, Supply(staying=3), 1, id="one in place of a lost one"),
        pytest.param(FIXED, Supply(staying=3, starting=1), 0, id="which is starting"),
        pytest.param(ELASTIC, Supply(staying=0, room=8), 8, id="as many as there is room for"),
        pytest.param(ELASTIC, Supply(staying=0, room=7), 4, id="of those that fit"),
        pytest.param(ELASTIC, Supply(staying=2, room=1), 0, id="no third one, which could do nothing"),
        pytest.param(ELASTIC, Supply(staying=2, room=2), 2, id="room for more"),
        pytest.param(ELASTIC, Supply(staying=1, room=0), 1, id="the least, although there is no room"),
        pytest.param(ELASTIC, Supply(staying=0, starting=2, room=0), 0, id="the least is starting"),
    ],
)
def test_workers_are_asked_for_where_they_can_be_used(sizes: Sizes, supply: Supply, expected: int) -> None:
    assert workers_to_start(sizes, supply) == expected


@pytest.mark.parametrize(
    ("supply", "waits_for_all", "expected"),
    [
        pytest.param(Supply(staying=4, starting=4), True, None, id="a run begins with all that are starting"),
        pytest.param(Supply(staying=8, starting=1), True, 8, id="and with no more than it can have"),
        pytest.param(Supply(staying=4), True, 4, id="no more are coming"),
        pytest.param(Supply(staying=5, starting=3), False, 4, id="a later attempt goes on with those that it has"),
        pytest.param(Supply(staying=1, starting=3), False, None, id="unless they are too few"),
    ],
)
def test_an_attempt_begins_with_the_workers_that_are_ready(
    *, supply: Supply, waits_for_all: bool, expected: int | None
) -> None:
    assert can_start(ELASTIC, supply, waits_for_all=waits_for_all) == expected


@pytest.mark.parametrize(
    ("supply", "expected"),
    [
        (Supply(staying=4), True),
        (Supply(staying=3), False),
        (Supply(staying=4, starting=4), False),
        (Supply(staying=2), False),
    ],
)
def test_a_run_grows_once_for_all_workers_that_are_coming(*, supply: Supply, expected: bool) -> None:
    assert can_grow(ELASTIC, supply, world=2) == expected


def test_a_run_leaves_nodes_early_if_it_goes_on_with_as_many_workers() -> None:
    assert can_leave(FIXED, Supply(staying=4), world=4)
    assert not can_leave(FIXED, Supply(staying=3, starting=1), world=4)
    assert not can_leave(ELASTIC, Supply(staying=3), world=4)
