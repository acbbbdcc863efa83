"""A rank's connection to Ray."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.distribution import RAY
from tests.engines.ray_cluster import short_folder
from tests.engines.report_table import ran
from tests.training.launch.leave_ray import SERIES
from training.launch import ray_client


@pytest.mark.xdist_group(RAY)
def test_the_last_metrics_of_a_rank_reach_the_agent_when_it_leaves() -> None:
    environment = {
        **os.environ,
        "RAY_raylet_start_wait_time_s": "120",  # 30 by default, which a busy machine exceeds
        "RAY_metrics_report_interval_ms": "60000",  # so that only the end of the connection can send anything
    }
    with short_folder() as folder:
        program = [sys.executable, "-m", "tests.training.launch.leave_ray", str(folder)]
        ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    ran("Ray cluster")
    assert SERIES in ended.stdout, ended.stderr


def _raises() -> None:
    raise ConnectionError("the head is gone")


@pytest.mark.parametrize("shutdown", [threading.Event().wait, _raises], ids=["hangs", "fails"])
def test_a_rank_that_has_succeeded_ends_although_ray_does_not(
    monkeypatch: pytest.MonkeyPatch, shutdown: Callable[[], object]
) -> None:
    """Ray is a double here: a head that is gone does not always make it hang."""
    called = list[str]()

    def shut_down() -> None:
        called.append(threading.current_thread().name)
        shutdown()

    monkeypatch.setattr(ray_client, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True, shutdown=shut_down))
    ray_client.disconnect()
    assert called == ["ray-shutdown"]
