"""`make monitor-up` with faster rules, and a run that it finds and scrapes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from observability.alerts.__main__ import FILE
from observability.alerts.catalog import ALERTS
from observability.monitor import FiringAlert
from tests.engines import prometheus
from tests.engines.ports import free_port
from tests.engines.prometheus import Prometheus
from tests.observability.alerts.live.faster_rules import faster_rules
from tests.training.launch.driver import PATIENCE, ROOT
from training.monitoring.firing import FiringAlerts
from training.monitoring.places import FOLDER, URL_FILE
from training.monitoring.prometheus import write_configuration

SCRAPE_SECONDS = 1
"""Between two scrapes, and two evaluations of the rules."""

_SPEED = "run:ray_rtp_train_samples_per_second:avg10m"

WITHOUT_A_CLUSTER = frozenset(alert.name for alert in ALERTS if alert.expression.startswith("absent("))
"""Alerts that fire here because the metrics of a cluster are missing. All others need metrics that exist."""


@dataclass(frozen=True, kw_only=True)
class Monitoring:
    """Local monitoring of one run.

    Attributes:
        minute: seconds that a minute of the rules takes.
        prometheus: its server.
        alerts: what the terminal monitor shows of the run.
        has_ended: whether it has ended by itself.
    """

    minute: int
    prometheus: Prometheus
    alerts: FiringAlerts
    has_ended: Callable[[], bool]

    def firing(self) -> set[str]:
        """Alerts that fire now."""
        return self._named('ALERTS{alertstate="firing"}')

    def have_fired(self) -> set[str]:
        """Alerts that fire now or have fired before."""
        return self._named('count_over_time(ALERTS{alertstate="firing"}[1d])')

    def _named(self, expression: str) -> set[str]:
        return {one["metric"]["alertname"] for one in self.prometheus.query(expression)} - WITHOUT_A_CLUSTER

    def await_alert(self, name: str) -> FiringAlert:
        """Wait until an alert fires, and return what the terminal monitor shows of it."""
        self.await_(lambda: any(alert.name == name for alert in self.alerts()), f"{name} does not fire")
        return next(alert for alert in self.alerts() if alert.name == name)

    def await_silence(self) -> None:
        """Wait until no alert fires."""
        self.await_(lambda: not self.firing(), f"not cleared: {self.firing()}")

    def await_minutes(self, minutes: int) -> None:
        """Wait until the run's throughput has been recorded for so many minutes of the rules."""
        recorded = f'count_over_time({_SPEED}{{run="run"}}[1d]) * {SCRAPE_SECONDS} >= {minutes * self.minute}'
        self.await_(lambda: self.prometheus.query(recorded), f"the run has no {minutes} minutes")

    def await_(self, holds: Callable[[], object], what: str) -> None:
        """Wait for what Prometheus will answer."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert not self.has_ended(), "monitoring has ended"
            assert time.monotonic() < deadline, f"{what}; fired so far: {self.have_fired()}"
            time.sleep(0.2)


@contextmanager
def monitoring(folder: Path, *, minute: int) -> Iterator[Monitoring]:
    """Monitor the run `folder/runs/run` with all delivered rules, in which a minute takes `minute` seconds.

    Skips without the program.
    """
    found = prometheus.program()
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "training", "monitor-up", "--root", str(folder / "runs"), "--port", str(port)],
        cwd=folder,
        env={**os.environ, "PROMETHEUS": str(found), "PYTHONPATH": str(ROOT)},
    )
    try:
        started = Monitoring(
            minute=minute,
            prometheus=Prometheus(f"http://127.0.0.1:{port}"),
            alerts=FiringAlerts(run="run", url_file=folder / URL_FILE),
            has_ended=lambda: process.poll() is not None,
        )
        started.await_((folder / URL_FILE).exists, "it does not start")
        _use_faster_rules(process.pid, folder / FOLDER, minute=minute)
        started.await_(
            lambda: started.prometheus.query('ALERTS{alertname="KubernetesMetricsMissing"}'), "no faster rules"
        )
        yield started
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _use_faster_rules(pid: int, folder: Path, *, minute: int) -> None:
    """Give a monitoring that serves other rules and a shorter interval."""
    write_configuration(folder, targets=folder / "targets.json", scrape_seconds=SCRAPE_SECONDS)
    (folder / "rules.yml").write_text(faster_rules(FILE, minute=minute), encoding="utf-8")
    (server,) = [child for child in psutil.Process(pid).children() if "prometheus" in child.name()]
    server.send_signal(signal.SIGHUP)
