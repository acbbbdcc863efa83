"""Rules and metrics in a real Prometheus."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec.errors import NoAnswerError
from platform_charts.objects.alert_rules import RULES
from tests.engines.ports import free_port
from tests.engines.prometheus import Prometheus as Server
from tests.engines.prometheus import recorded
from tests.training.cluster.conformance.suites import prometheus_with_rules, receiver
from tests.training.cluster.team_cluster import target, wait_until
from training.cluster.conformance.check import Finding
from training.cluster.conformance.expected_rules import expected_rules
from training.cluster.conformance.judges import monitoring
from training.cluster.conformance.probes.prometheus import WATCHDOG, Prometheus

pytestmark = pytest.mark.monitoring

MANY_TO_MANY = (
    'vector(1) * on () (label_replace(vector(1), "a", "1", "", "") or label_replace(vector(1), "a", "2", "", ""))'
)
"""Two series on a side that must have one: an error at each evaluation, and none when the rule is loaded."""


def _document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(RULES.read_text())
    return found


def _expected() -> Mapping[str, frozenset[str]]:
    return expected_rules(target().outputs)


def test_the_rules_of_the_release_are_evaluated_without_an_error(tmp_path: Path) -> None:
    with prometheus_with_rules(tmp_path) as server:
        finding = monitoring.rules(Prometheus(server.url).rule_groups(), expected=_expected())
    assert (finding.verdict, finding.found) == ("passed", finding.expected.removesuffix(", no error"))


def test_a_missing_group_a_missing_rule_and_a_rule_with_an_error_are_found(tmp_path: Path) -> None:
    document = _document()
    (queue,) = [one for one in document["groups"] if one["name"] == "queue"]
    (training,) = [one for one in document["groups"] if one["name"] == "training"]
    document["groups"].remove(queue)
    lost = training["rules"].pop()["alert"]
    broken = training["rules"][-1]
    broken["expr"] = MANY_TO_MANY
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(document))
    with prometheus_with_rules(tmp_path / "data", file) as server:
        asked = Prometheus(server.url)
        wait_until(lambda: any(one.errors for one in asked.rule_groups()))
        finding = monitoring.rules(asked.rule_groups(), expected=_expected())
    assert finding.verdict == "failed"
    for said in (f"group training lacks {lost}", "group queue is not loaded", f"training: {broken['alert']}: "):
        assert said in finding.found


def test_groups_of_others_are_left_alone(tmp_path: Path) -> None:
    document = _document()
    rule = {"record": "a:b", "expr": MANY_TO_MANY}
    document["groups"].append({"name": "somebody-elses", "rules": [rule]})
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(document))
    with prometheus_with_rules(tmp_path / "data", file) as server:
        asked = Prometheus(server.url)
        wait_until(lambda: any(one.errors for one in asked.rule_groups()))
        assert monitoring.rules(asked.rule_groups(), expected=_expected()).verdict == "passed"


def test_the_newest_step_of_the_job_counts_and_that_of_others_does_not(tmp_path: Path) -> None:
    now = time.time()
    series = "".join(
        f'ray_rtp_train_step{{training_job="{job}",run="{job}"}} {step} {now - ago:.3f}\n'
        for job, step, ago in (("mine", 20, 90), ("mine", 40, 60), ("other", 99, 60))
    )
    file = tmp_path / "samples"
    file.write_text(f"# TYPE ray_rtp_train_step gauge\n{series}# EOF\n")
    with recorded(file, folder=tmp_path) as server:
        asked = Prometheus(server.url)
        assert asked.steps("mine") == {"mine": 40.0}
        assert monitoring.metrics(asked.steps("mine"), run="mine").verdict == "passed"
        assert monitoring.metrics(asked.steps("nobodys"), run="nobodys").found == "no such series"


def test_the_last_scrape_of_a_job_that_has_just_ended_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Prometheus("http://nowhere")
    sample = {"metric": {"training_job": "mine"}, "value": [0, "40"]}
    answers = iter([[], [], [sample]])
    monkeypatch.setattr(asked, "_ask", lambda _path, **_parameters: {"result": next(answers)})
    assert asked.steps("mine", wait_seconds=30) == {"mine": 40.0}
    assert next(answers, None) is None


def _alerts_of(server: Server) -> Finding:
    return monitoring.alerts(Prometheus(server.url).alerting(), name=WATCHDOG)


def test_an_alert_that_alertmanager_takes_passes(tmp_path: Path) -> None:
    with receiver() as address, prometheus_with_rules(tmp_path, alertmanager=address) as server:
        wait_until(lambda: _alerts_of(server).verdict == "passed")


def test_an_alertmanager_that_takes_no_notification_is_found(tmp_path: Path) -> None:
    with receiver(status=500) as address, prometheus_with_rules(tmp_path, alertmanager=address) as server:
        wait_until(lambda: Prometheus(server.url).alerting().failed > 0)
        finding = _alerts_of(server)
    assert (finding.verdict, finding.found) == ("failed", "Alertmanager takes no notification")


def test_a_prometheus_without_an_alertmanager_is_found(tmp_path: Path) -> None:
    with prometheus_with_rules(tmp_path) as server:
        wait_until(lambda: Prometheus(server.url).alerting().is_firing)
        found = _alerts_of(server).found
    assert found == "Prometheus has no Alertmanager; Prometheus has sent no notification lately"


def test_a_missing_alert_that_should_always_fire_is_found(tmp_path: Path) -> None:
    with receiver() as address, prometheus_with_rules(tmp_path, alertmanager=address, has_watchdog=False) as server:
        wait_until(lambda: bool(Prometheus(server.url).alerting().alertmanagers))
        found = _alerts_of(server).found
    assert found == "alert Watchdog does not fire; Prometheus has sent no notification lately"


def test_a_prometheus_that_does_not_answer_is_no_prometheus_without_rules() -> None:
    with pytest.raises(NoAnswerError, match="does not answer"):
        Prometheus(f"http://127.0.0.1:{free_port()}").rule_groups()
