"""A rank's connection to Ray."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.distribution import RAY
from tests.engines.ray_cluster import run_program
from tests.training.launch.leave_ray import SERIES
from training.launch import ray_client


@pytest.mark.extended
@pytest.mark.xdist_group(RAY)
def test_the_last_metrics_of_a_rank_reach_the_agent_when_it_leaves() -> None:
    # A minute, so that only the end of the connection can send anything.
    assert SERIES in run_program("tests.training.launch.leave_ray", metrics_interval=60_000)


def _raises() -> None:
    raise ConnectionError("the head is gone")


@pytest.mark.parametrize("shutdown", [threading.Event().wait, _raises], ids=["hangs", "fails"])
def test_a_rank_ends_although_ray_does_not(monkeypatch: pytest.MonkeyPatch, shutdown: Callable[[], object]) -> None:
    """Ray is a double here: a head that is gone does not always make it hang."""
    called = list[str]()

    def shut_down() -> None:
        called.append(threading.current_thread().name)
        shutdown()

    monkeypatch.setattr(ray_client, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True, shutdown=shut_down))
    ray_client.disconnect()
    assert called == ["ray-shutdown"]
