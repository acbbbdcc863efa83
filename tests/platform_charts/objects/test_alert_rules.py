"""The PrometheusRule of an environment has the groups whose metrics the environment has."""

from __future__ import annotations

import json

import yaml

from infra.spec.manifest import Manifest
from infra.spec.node_labels import SPOT_TAINT, START_UP_TAINT, UNHEALTHY_TAINT
from infra.spec.release import load_release
from platform_charts.charts.alertmanager import Alerting, alertmanager_config
from platform_charts.objects.alert_rules import BUDGET_GROUPS, GPU_GROUPS, LOG_GROUPS, RULES, alert_rules
from platform_charts.objects.dashboards import DASHBOARDS, dashboards
from tests.infra.aws.graphs import settings_of
from tests.platform_charts.objects.samples import varied

ALERTING = Alerting(environment="dev", region="us-east-1", topic_arn="arn", webhook_secret=None, image="image")


def all_groups() -> list[Manifest]:
    groups: list[Manifest] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return groups


def delivered(**changes: object) -> list[str]:
    """Names of the groups of a changed environment."""
    (rules,) = alert_rules(varied(changes), load_release())
    return [group["name"] for group in rules["spec"]["groups"]]


def test_an_environment_has_the_groups_whose_metrics_it_has() -> None:
    everything = [group["name"] for group in all_groups()]
    optional = {*GPU_GROUPS, *LOG_GROUPS, *BUDGET_GROUPS}
    assert delivered(**{"teams.0.daily_usd": 100}) == everything
    groups = delivered(gpu_groups=[], logs={"destination": "none"}, **{"teams.0.gpus": {}})
    assert set(groups) == set(everything) - optional
    assert optional <= set(everything)


def test_only_groups_that_may_be_left_out_need_gpus_or_logs() -> None:
    """A rule over series that never exist is dead; one that asks for their absence would always fire."""
    optional = ("DCGM_", "nvidia", "fluentbit_", UNHEALTHY_TAINT.key, START_UP_TAINT.key, SPOT_TAINT.key)
    needing = {
        group["name"]
        for group in all_groups()
        for rule in group["rules"]
        if any(one in rule["expr"] for one in optional)
    }
    assert needing == {*GPU_GROUPS, *LOG_GROUPS}


def test_every_severity_is_routed() -> None:
    severities = {rule["labels"]["severity"] for group in all_groups() for rule in group["rules"] if "alert" in rule}
    assert severities == {"critical", "warning", "info"}
    matchers = [matcher for child in alertmanager_config(ALERTING)["route"]["routes"] for matcher in child["matchers"]]
    # The route without a matcher is that of `warning`.
    assert {severity for severity in severities if f'severity = "{severity}"' in matchers} == {"critical", "info"}


def test_objects_do_not_share_their_groups() -> None:
    """Pulumi replaces placeholders in what it is given."""
    first, second = (alert_rules(settings_of("dev"), load_release())[0]["spec"]["groups"] for _ in range(2))
    assert first == second
    assert first[0] is not second[0]


_MOST_BYTES = 2**20
"""Of a ConfigMap's data; the API server refuses more."""


def test_every_committed_dashboard_is_delivered_as_it_is_where_the_sidecar_looks() -> None:
    made = dashboards(load_release())
    delivered = {name: json.loads(text) for manifest in made for name, text in manifest["data"].items()}
    assert delivered == {file.name: json.loads(file.read_text(encoding="utf-8")) for file in DASHBOARDS.iterdir()}
    assert len(delivered) >= 9
    for manifest in made:
        assert manifest["metadata"]["namespace"] == "monitoring"
        assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert sum(len(text.encode()) for text in manifest["data"].values()) < _MOST_BYTES / 4
