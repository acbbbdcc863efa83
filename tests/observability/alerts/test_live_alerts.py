"""A rank that hangs in a real run raises its alert and no other, and the alert clears when the rank goes on.

Two real ranks under torchrun, found and scraped by `make monitor-up` with a real Prometheus and all delivered rules, one of them with
shorter durations.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from observability.alerts.__main__ import FILE
from observability.alerts.catalog import ALERTS
from observability.alerts.training import STALL_SECONDS
from tests.engines import prometheus, report_table
from tests.engines.ports import free_port
from tests.engines.prometheus import Prometheus
from tests.training.launch.driver import PATIENCE, ROOT, Driver, is_commit, train
from tests.training.runs import small_settings
from tests.waiting import wait_until
from training.monitoring.firing import FiringAlerts
from training.monitoring.places import FOLDER, URL_FILE
from training.monitoring.prometheus import write_configuration

WITHOUT_A_CLUSTER = frozenset(alert.name for alert in ALERTS if alert.expression.startswith("absent("))
"""Alerts that fire here because the metrics of a cluster are missing. All others need metrics that exist."""


def use_faster_rules(pid: int, folder: Path) -> None:
    """Give a monitoring that serves an interval of a second, and rules in which TrainingStalled fires after fifteen."""
    rules = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    (stalled,) = [one for group in rules["groups"] for one in group["rules"] if one.get("alert") == "TrainingStalled"]
    assert f"> {STALL_SECONDS}" in stalled["expr"]
    stalled |= {"expr": stalled["expr"].replace(f"> {STALL_SECONDS}", "> 15"), "for": "1s"}
    write_configuration(folder, targets=folder / "targets.json", scrape_seconds=1)
    (folder / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    (server,) = [child for child in psutil.Process(pid).children() if "prometheus" in child.name()]
    server.send_signal(signal.SIGHUP)


def rank_process(driver: Driver, rank: int) -> psutil.Process:
    """The process of a rank."""
    found = [one for one in driver.descendants() if "training.launch.rank" in one.cmdline()]
    return next(one for one in found if one.environ().get("RANK") == str(rank))


@pytest.mark.extended
@pytest.mark.monitoring
def test_a_rank_that_hangs_stalls_the_run_until_it_goes_on(tmp_path: Path) -> None:
    # Over 20 CPU seconds: the ranks train until the rules have seen them, and rank 0 waits for the other one.
    environment = {**os.environ, "PROMETHEUS": str(prometheus.program()), "PYTHONPATH": str(ROOT)}
    port = free_port()
    server, alerts = Prometheus(f"http://127.0.0.1:{port}"), FiringAlerts(run="run", url_file=tmp_path / URL_FILE)

    def fired() -> set[str]:
        found = server.query('count_over_time(ALERTS{alertstate="firing"}[1d])')
        return {one["metric"]["alertname"] for one in found} - WITHOUT_A_CLUSTER

    settings = small_settings(
        loop={"epochs": 10_000, "evaluate_every": 10_000},
        checkpoint={"every_steps": 500},
        metrics={"exporter": "prometheus"},
        scale={"launcher": "torchrun", "workers": 2},
    )
    command = [sys.executable, "-m", "training", "monitor-up", "--root", str(tmp_path / "runs"), "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as monitoring:
        try:
            wait_until((tmp_path / URL_FILE).exists, seconds=PATIENCE)
            use_faster_rules(monitoring.pid, tmp_path / FOLDER)
            with train(settings, tmp_path) as driver:
                assert driver.wait_for(is_commit), driver.end()
                report_table.ran("torchrun")
                steps = 'count_over_time(ray_rtp_train_step{run="run"}[1d]) > 5'
                wait_until(lambda: bool(server.query(steps)), seconds=PATIENCE)
                assert fired() == set()
                hanging = rank_process(driver, 1)
                hanging.suspend()
                wait_until(lambda: bool(alerts()), seconds=PATIENCE)
                assert [alert.name for alert in alerts()] == ["TrainingStalled"]
                assert alerts()[0].summary.endswith("in run run of job local/run.")
                hanging.resume()
                wait_until(lambda: not alerts(), seconds=PATIENCE)
                driver.interrupt()
                assert driver.end().status == 130
            assert fired() == {"TrainingStalled"}
        finally:
            monitoring.send_signal(signal.SIGINT)
