"""What is known while Prometheus does not answer; `test_cluster_job_progress` queries a real one."""

from __future__ import annotations

from platform_charts.images.job_progress.prometheus import Prometheus
from tests.engines.ports import free_port


def test_a_silent_prometheus_leaves_the_runs_unknown_for_a_while_only() -> None:
    now = [0.0]
    prometheus = Prometheus(f"http://127.0.0.1:{free_port()}", patience=300, clock=lambda: now[0])
    assert prometheus.problem == ""
    for seconds, known in ((0, None), (299, None), (300, {}), (4000, {})):
        now[0] = float(seconds)
        assert prometheus.runs() == known
        assert "Prometheus does not answer" in prometheus.problem
