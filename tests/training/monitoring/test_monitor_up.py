"""`monitor-up` with a real Prometheus and a run that serves its metrics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from observability.metrics.prometheus import PrometheusRecorder
from observability.metrics.training_metrics import TrainingMetrics
from observability.runlog import RunLogWriter, TrainingStarted
from tests.engines import prometheus
from tests.engines.ports import free_port
from tests.engines.prometheus import Prometheus
from tests.observability.sample_run import restarted_run
from tests.waiting import wait_until
from training.config.schema import TrainingSettings
from training.errors import PreflightError
from training.monitoring.firing import FiringAlerts
from training.monitoring.grafana import write_provisioning
from training.monitoring.places import URL_FILE
from training.monitoring.prometheus import find_prometheus
from training.rundir import RunDirectory

pytestmark = pytest.mark.monitoring

_SECONDS = 120.0


@contextmanager
def running(root: Path, name: str) -> Iterator[RunDirectory]:
    """A run whose driver lives and that serves its metrics."""
    made = TrainingSettings.model_validate({"run": {"directory": str(root), "name": name}})
    run = RunDirectory(root / name)
    run.path.mkdir(parents=True)
    run.write_settings(made)
    recorder = PrometheusRecorder(host="127.0.0.1", port=0)
    metrics = TrainingMetrics(recorder, run=name)
    try:
        with run.driving(), RunLogWriter(run.path) as log:
            for event in restarted_run():
                log.write(replace(event, metrics_url=recorder.url) if isinstance(event, TrainingStarted) else event)
                metrics.handle(event)
            yield run
    finally:
        recorder.close()


@pytest.mark.extended
def test_a_running_run_is_recorded_with_the_labels_of_the_stack_and_its_rules(tmp_path: Path) -> None:
    program, port = prometheus.program(), free_port()
    command = [sys.executable, "-m", "training", "monitor-up", "--root", str(tmp_path / "runs"), "--port", str(port)]
    environment = {**os.environ, "PROMETHEUS": str(program), "PYTHONPATH": str(Path(__file__).parents[3])}
    server = Prometheus(f"http://127.0.0.1:{port}")
    with running(tmp_path / "runs", "first"):
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: (tmp_path / URL_FILE).exists() or process.poll() is not None, seconds=_SECONDS)
            chosen = '{namespace="local",team="local",training_job="first",run="first"}'
            wait_until(lambda: bool(server.query(f"ray_rtp_train_step{chosen}")), seconds=_SECONDS)
            rule = "run:ray_rtp_train_samples_per_second:avg10m{run='first'}"
            wait_until(lambda: bool(server.query(rule)), seconds=_SECONDS)
            again = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert again.returncode == 3
            assert f"local monitoring is up already: http://127.0.0.1:{port}" in again.stderr
        finally:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0
    assert "run first" in said.splitlines()
    assert not (tmp_path / URL_FILE).exists()


def test_alerts_that_fire_about_a_run_are_found(tmp_path: Path) -> None:
    labels = {"severity": "warning", "namespace": "local"}
    rules = [
        {
            "alert": name,
            "expr": "vector(1)",
            "labels": {**labels, "run": run},
            "annotations": {"summary": "slow", "description": "look"},
        }
        for name, run in (("Slow", "first"), ("Other", "second"))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "test", "rules": rules}]}), encoding="utf-8")
    url_file = tmp_path / "prometheus.url"
    alerts = FiringAlerts(run="first", url_file=url_file)
    assert alerts() == []
    with prometheus.scraping(f"http://127.0.0.1:{free_port()}/metrics", folder=tmp_path, rules=file) as server:
        url_file.write_text(server.url, encoding="utf-8")
        wait_until(lambda: bool(alerts()), seconds=_SECONDS)
        assert [(one.name, one.severity, one.summary, one.action) for one in alerts()] == [
            ("Slow", "warning", "slow", "look")
        ]
    assert alerts() == []  # it has ended and left its file behind


def test_without_prometheus_the_remedy_is_named() -> None:
    with pytest.raises(PreflightError, match="no `prometheus` on PATH") as missing:
        find_prometheus({"PATH": ""})
    assert missing.value.remedy.startswith("apt-get install prometheus")
    with pytest.raises(PreflightError, match="PROMETHEUS=/nowhere is not executable"):
        find_prometheus({"PATH": "", "PROMETHEUS": "/nowhere"})


def test_grafana_gets_the_dashboards_and_the_data_source(tmp_path: Path) -> None:
    folder = write_provisioning(tmp_path, prometheus_url="http://127.0.0.1:9090")
    provider = yaml.safe_load((folder / "dashboards" / "platform.yaml").read_text(encoding="utf-8"))["providers"][0]
    assert (Path(provider["options"]["path"]) / "rtp-run.json").is_file()
    source = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text(encoding="utf-8"))["datasources"][0]
    assert (source["type"], source["url"]) == ("prometheus", "http://127.0.0.1:9090")
