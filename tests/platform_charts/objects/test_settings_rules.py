"""The prices and budgets that a stack records, and what the rules make of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from observability.alerts.catalog import GROUPS
from platform_charts.objects.alert_rules import alert_rules
from platform_charts.objects.settings_rules import settings_rules
from tests.engines.promtool import promtool
from tests.platform_charts.objects.samples import varied

pytestmark = pytest.mark.monitoring

_T4, _H100 = "g4dn.xlarge", "p5.48xlarge"


def recorded(group: str, **changes: object) -> list[Manifest]:
    """The rules of a changed environment that record its settings for a group."""
    return list(settings_rules(varied(changes), catalog=load_catalog())[group])


def delivered(name: str, **changes: object) -> Manifest:
    """A group of rules as a changed environment gets it."""
    (rules,) = alert_rules(varied(changes), load_release())
    (group,) = [one for one in rules["spec"]["groups"] if one["name"] == name]
    found: Manifest = group
    return found


def price(instance_type: str) -> float:
    """US dollars per hour by the catalogue."""
    found = load_catalog().find_instance(instance_type).usd_per_hour
    assert found is not None
    return found


def evaluated(
    group: Manifest, series: Mapping[str, str], samples: Mapping[str, tuple[str, float]], *, minute: int, folder: Path
) -> str:
    """What promtool complains of, if it expects of each sample an expression and its value at a minute."""
    by_expression: dict[str, list[Manifest]] = {}
    for labels, (expression, value) in samples.items():
        by_expression.setdefault(expression, []).append({"labels": labels, "value": value})
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{minute}m", "exp_samples": expected}
            for expression, expected in by_expression.items()
        ],
    }
    files = {
        "rules.yaml": {"groups": [group]},
        "tests.yaml": {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]},
    }
    for name, content in files.items():
        (folder / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    return promtool("test", "rules", "tests.yaml", folder=folder)


def test_every_type_of_a_group_has_its_price() -> None:
    spot = {"instance_type": "g5.xlarge", "capacity": {"kind": "spot", "instance_types": ["g5.2xlarge"]}}
    rules = recorded("gpu-cost", **{f"gpu_groups.0.{name}": value for name, value in spot.items()})
    found = {(rule["labels"]["group"], rule["labels"]["instance_type"]): rule["expr"] for rule in rules}
    assert found == {
        ("t4", "g5.xlarge"): f"vector({price('g5.xlarge')})",
        ("t4", "g5.2xlarge"): f"vector({price('g5.2xlarge')})",
        ("h100", _H100): f"vector({price(_H100)})",
    }


def test_another_region_has_no_prices() -> None:
    zones = ["us-west-2a", "us-west-2b", "us-west-2c"]
    changes = {"aws.region": "us-west-2", "network.availability_zones": zones}
    assert recorded("gpu-cost", **changes, **{"gpu_groups.1.availability_zones": zones[:1]}) == []


def test_a_team_has_a_budget_only_by_its_setting() -> None:
    assert recorded("team-budgets") == []
    (rule,) = recorded("team-budgets", **{"teams.0.daily_usd": 250})
    assert (rule["expr"], rule["labels"]) == ("vector(250.0)", {"team": "research"})


def test_the_recorded_series_are_those_that_the_rules_expect() -> None:
    expected = {group.name: [(one.name, set(one.labels)) for one in group.given] for group in GROUPS if group.given}
    for name, given in expected.items():
        rules = recorded(name, **{"teams.0.daily_usd": 250})
        assert {(rule["record"], frozenset(rule["labels"])) for rule in rules} == {
            (series, frozenset(labels)) for series, labels in given
        }
        assert delivered(name, **{"teams.0.daily_usd": 250})["rules"][: len(rules)] == rules


def test_a_node_without_a_pod_that_has_gpus_is_counted_as_idle_dollars(tmp_path: Path) -> None:
    """Node a has a job, b has none, c still starts and advertises no GPUs, d belongs to no GPU group."""
    nodes = {"a": ("h100", _H100), "b": ("h100", _H100), "c": ("t4", _T4), "d": ("system", "m7i.xlarge")}
    labels = 'label_ray_train_platform_group="{}", label_node_kubernetes_io_instance_type="{}"'
    series = {f'kube_node_labels{{node="{node}", {labels.format(*kind)}}}': "1x10" for node, kind in nodes.items()}
    series |= {f'kube_node_status_capacity{{node="{node}", resource="nvidia_com_gpu"}}': "8x10" for node in ("a", "b")}
    pod = 'namespace="research", pod="first-w0"'
    series[f'kube_pod_container_resource_requests{{{pod}, node="a", resource="nvidia_com_gpu"}}'] = "1x10"
    series[f'kube_pod_status_phase{{{pod}, phase="Running"}}'] = "1x10"
    expected = {
        "node:gpu_node_dollars_per_hour:price": {"a": _H100, "b": _H100, "c": _T4},
        "node:idle_gpu_node_dollars_per_hour:price": {"b": _H100, "c": _T4},
    }
    samples = {
        f'{name}{{node="{node}"}}': (name, price(kind))
        for name, found in expected.items()
        for node, kind in found.items()
    }
    assert evaluated(delivered("gpu-cost"), series, samples, minute=5, folder=tmp_path) == ""


def test_the_dollars_of_a_day_count_the_runs_that_are_over(tmp_path: Path) -> None:
    """One run spends $30 an hour, another team's has done so in the first 12 of the 24 hours. The rates of an hour lag by half of it."""
    series = {
        f'ray_rtp_train_cost_dollars_total{{team="{team}", run="r1", class="productive"}}': values
        for team, values in (("research", "0+0.5x1600"), ("vision", "0+0.5x900 stale"))
    }
    spent = "round(team:dollars:sum1d, 5)"
    samples = {f'{{team="{team}"}}': (spent, dollars) for team, dollars in (("research", 720.0), ("vision", 375.0))}
    assert evaluated(delivered("run-cost"), series, samples, minute=1621, folder=tmp_path) == ""


def test_promtool_accepts_what_an_environment_gets(tmp_path: Path) -> None:
    groups = [delivered(name, **{"teams.0.daily_usd": 250}) for name in ("gpu-cost", "team-budgets")]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    assert promtool("check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path) == ""
