"""Room for all workers of a run or for none, on a real Ray cluster of several nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distribution import RAY
from tests.engines.ray_raylets import raylets_of_this_driver
from tests.training.launch.agent.group import eventually
from training.launch.ray_reservation import Reservation

pytestmark = pytest.mark.xdist_group(RAY)

NEED = {"CPU": 1.0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Three workers with a CPU each, and this process as a driver."""
    with raylets_of_this_driver(3):
        yield


@pytest.mark.usefixtures("cluster")
def test_of_two_runs_that_do_not_fit_together_one_gets_all_of_its_room() -> None:
    first, second = Reservation(NEED, workers=2), Reservation(NEED, workers=2)
    assert eventually(lambda: first.is_ready, seconds=30)
    assert not second.is_ready
    first.release()
    assert eventually(lambda: second.is_ready, seconds=30)
    second.release()


@pytest.mark.usefixtures("cluster")
def test_room_that_is_asked_for_no_more_is_not_taken() -> None:
    too_much = Reservation(NEED, workers=4)
    assert not eventually(lambda: too_much.is_ready, seconds=2.0)
    too_much.release()
    fits = Reservation(NEED, workers=3)
    assert eventually(lambda: fits.is_ready, seconds=30)
    fits.release()
