"""A rank's connection to Ray."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.distribution import RAY
from tests.engines.ray_cluster import short_folder
from tests.engines.report_table import ran
from tests.training.launch.leave_ray import SERIES


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
