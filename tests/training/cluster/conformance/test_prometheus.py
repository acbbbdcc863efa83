"""Rules and metrics in a real Prometheus."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.spec.errors import NoAnswerError
from platform_charts.objects.alert_rules import RULES
from tests.engines.ports import free_port
from tests.engines.prometheus import recorded
from tests.training.cluster.conformance.suites import prometheus_with_rules, receiver
from tests.training.cluster.team_cluster import target
from tests.waiting import wait_until
from training.cluster.conformance.expected_rules import expected_rules
from training.cluster.conformance.judges import monitoring
from training.cluster.conformance.judges.monitoring import AlertFacts
from training.cluster.conformance.probes.prometheus import WATCHDOG, Prometheus

pytestmark = pytest.mark.monitoring

MANY_TO_MANY = (
    'vector(1) * on () (label_replace(vector(1), "a", "1", "", "") or label_replace(vector(1), "a", "2", "", ""))'
)
"""Two series on a side that must have one: an error at each evaluation, and none when the rule is loaded."""


def test_broken_rules_and_an_alertmanager_that_refuses_are_found_but_no_groups_of_others(tmp_path: Path) -> None:
    document = yaml.safe_load(RULES.read_text())
    groups = {one["name"]: one for one in document["groups"]}
    document["groups"].remove(groups["queue"])
    lost = groups["training"]["rules"].pop()["alert"]
    broken = groups["training"]["rules"][-1]
    broken["expr"] = MANY_TO_MANY
    document["groups"].append({"name": "somebody-elses", "rules": [{"record": "a:b", "expr": MANY_TO_MANY}]})
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(document))
    with (
        receiver(status=500) as address,
        prometheus_with_rules(tmp_path / "data", file, alertmanager=address) as server,
    ):
        asked = Prometheus(server.url)
        wait_until(lambda: len([one for one in asked.rule_groups() if one.errors]) == 2)
        wait_until(lambda: asked.alerting().failed > 0)
        rules = monitoring.rules(asked.rule_groups(), expected=expected_rules(target().outputs))
        alerts = monitoring.alerts(asked.alerting(), name=WATCHDOG)
    assert rules.verdict == "failed"
    for said in (f"group training lacks {lost}", "group queue is not loaded", f"training: {broken['alert']}: "):
        assert said in rules.found
    assert "somebody" not in rules.found
    assert (alerts.verdict, alerts.found) == ("failed", "Alertmanager takes no notification")


def test_alerts_must_fire_and_leave_prometheus() -> None:
    good = AlertFacts(alertmanagers=1, is_firing=True, sent=2.0, failed=0.0)
    silent = "Prometheus has sent no notification lately"
    for facts, found in (
        (replace(good, alertmanagers=0, sent=None), f"Prometheus has no Alertmanager; {silent}"),
        (replace(good, is_firing=False, sent=None), f"alert Watchdog does not fire; {silent}"),
        (replace(good, sent=0.0), silent),
    ):
        finding = monitoring.alerts(facts, name=WATCHDOG)
        assert (finding.verdict, finding.found) == ("failed", found)
    assert monitoring.alerts(good, name=WATCHDOG).verdict == "passed"


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


def test_a_prometheus_that_does_not_answer_is_no_prometheus_without_rules() -> None:
    with pytest.raises(NoAnswerError, match="does not answer"):
        Prometheus(f"http://127.0.0.1:{free_port()}").rule_groups()
