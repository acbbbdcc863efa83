"""promtool's unit test of every alert: it fires, it stays silent next to its limit, and it stops when its series vanish."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from observability.alerts.catalog import ALERTS, GROUPS
from observability.alerts.model import Alert, Group
from tests.engines.promtool import promtool
from tests.observability.alerts.cases import checkpoints, gpu, nodes, queue, services, training
from tests.observability.alerts.cases.case import Case, Series

pytestmark = pytest.mark.monitoring

CASES = (*training.CASES, *checkpoints.CASES, *queue.CASES, *gpu.CASES, *nodes.CASES, *services.CASES)

_LOOKBACK_MINUTES = 5
"""Time for which Prometheus shows the last sample of a series that is not marked as stale."""

_MINUTES = {"m": 1, "h": 60, "d": 1440}


def _rule(case: Case) -> tuple[Group, Alert]:
    ((group, alert),) = [(group, alert) for group in GROUPS for alert in group.alerts if alert.name == case.alert]
    return group, alert


def _history(group: Group) -> int:
    """Minutes after which the group's expressions no longer see a series that has vanished."""
    durations = re.findall(r"(?:\[|offset )(\d+[mhd])", " ".join(rule.expression for rule in group.rules))
    return sum(sorted(map(_minutes, durations))[-2:]) + 2 * _LOOKBACK_MINUTES


def _minutes(duration: str) -> int:
    return int(duration[:-1]) * _MINUTES[duration[-1]]


def _test(name: str, case: Case, series: Series, *, at: int, fires: bool) -> Mapping[str, object]:
    _, alert = _rule(case)
    manifest: Mapping[str, object] = {
        "exp_labels": {**case.labels, "severity": alert.severity.value},
        "exp_annotations": {
            "summary": case.summary,
            "description": alert.action,
            "runbook": f"docs/RUNBOOKS.md#{alert.anchor}",
        },
    }
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items() if values],
        "alert_rule_test": [
            {"eval_time": f"{at}m", "alertname": case.alert, "exp_alerts": [manifest] if fires else []}
        ],
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_the_alert_fires_and_stays_silent_as_it_should(case: Case, tmp_path: Path) -> None:
    group, alert = _rule(case)
    tests = [_test("fires", case, case.series, at=case.at, fires=True)]
    tests += [
        _test(name, case, {**case.series, **changes}, at=case.at, fires=False) for name, changes in case.silent.items()
    ]
    if wait := _minutes(alert.wait):
        tests.append(_test("has not waited", case, case.series, at=wait - 1, fires=False))
    if case.resolves:
        tests.append(_test("vanished", case, case.series, at=case.at + _history(group), fires=False))
    files = {
        "rules.yaml": {"groups": [group.manifest()]},
        "tests.yaml": {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    assert promtool("test", "rules", "tests.yaml", folder=tmp_path) == ""


def test_every_alert_has_one_case_with_a_silent_neighbour() -> None:
    assert sorted(case.alert for case in CASES) == sorted(alert.name for alert in ALERTS)
    assert [case.alert for case in CASES if not case.silent] == []
