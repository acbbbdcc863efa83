"""promtool's unit test of every alert, the check of all rules against the inventory, and the committed file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import yaml

from observability.alerts.__main__ import FILE, rules_file
from observability.alerts.catalog import ALERTS, GROUPS
from observability.alerts.check import RuleError, check_rules
from observability.alerts.checkpoints import WRITE_SECONDS
from observability.alerts.model import Alert, Group, Recording, Severity
from observability.metrics.inventory import CHECKPOINT_BUCKETS
from tests.engines.promtool import promtool
from tests.observability.alerts.cases import checkpoints, gpu, nodes, queue, services, training
from tests.observability.alerts.cases.case import Case, Series

pytestmark = pytest.mark.monitoring

CASES = training.CASES | checkpoints.CASES | queue.CASES | gpu.CASES | nodes.CASES | services.CASES
RULES = {alert.name: (group, alert) for group in GROUPS for alert in group.alerts}
_LOOKBACK_MINUTES = 5

"""Time for which Prometheus shows the last sample of a series that is not marked as stale."""

_MINUTES = {"m": 1, "h": 60, "d": 1440}


def _history(group: Group) -> int:
    """Minutes after which the group's expressions no longer see a series that has vanished."""
    durations = re.findall(r"(?:\[|offset )(\d+[mhd])", " ".join(rule.expression for rule in group.rules))
    return sum(sorted(map(_minutes, durations))[-2:]) + 2 * _LOOKBACK_MINUTES


def _minutes(duration: str) -> int:
    return int(duration[:-1]) * _MINUTES[duration[-1]]


def _test(alert: Alert, name: str, case: Case, series: Series, *, at: int, fires: bool) -> Mapping[str, object]:
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
            {"eval_time": f"{at}m", "alertname": alert.name, "exp_alerts": [manifest] if fires else []}
        ],
    }


@pytest.mark.extended
@pytest.mark.parametrize("name", CASES)
def test_the_alert_fires_and_stays_silent_as_it_should(name: str, tmp_path: Path) -> None:
    case, (group, alert) = CASES[name], RULES[name]
    test = partial(_test, alert, case=case)
    tests = [test("fires", series=case.series, at=case.at, fires=True)]
    tests += [test(why, series={**case.series, **one}, at=case.at, fires=False) for why, one in case.silent.items()]
    if wait := _minutes(alert.wait):
        tests.append(test("has not waited", series=case.series, at=wait - 1, fires=False))
    if case.resolves:
        tests.append(test("vanished", series=case.series, at=case.at + _history(group), fires=False))
    files = {
        "rules.yaml": {"groups": [group.manifest()]},
        "tests.yaml": {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests},
    }
    for file, content in files.items():
        (tmp_path / file).write_text(yaml.safe_dump(content), encoding="utf-8")
    assert promtool("test", "rules", "tests.yaml", folder=tmp_path) == ""


def test_every_alert_has_one_case_with_a_silent_neighbour() -> None:
    assert sorted(CASES) == sorted(alert.name for alert in ALERTS)
    assert [name for name, case in CASES.items() if not case.silent] == []


def group(expression: str, *, summary: str = "{{ $value }}", recordings: tuple[Recording, ...] = ()) -> Group:
    alert = Alert(
        name="Tested", expression=expression, wait="0m", severity=Severity.INFO, summary=summary, action="Nothing."
    )
    return Group(name="tested", recordings=recordings, alerts=(alert,))


def test_the_committed_file_is_current_and_promtool_accepts_it() -> None:
    """`python -m observability.alerts` writes it."""
    assert FILE.read_text(encoding="utf-8") == rules_file()
    assert FILE.relative_to(Path(__file__).parents[3]).as_posix() == "platform_charts/objects/alert_rules.yaml"
    assert promtool("check", "rules", "--lint-fatal", FILE.name, folder=FILE.parent) == ""


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            [group("sum by (job) (up) < 1", summary="{{ $labels.run }} {{ $value }}")],
            "unknown label 'run' in its summary: the expression has job; did you mean",
        ),
        ([group("up < 1", summary="Down.")], "Tested: its summary has no"),
        ([group("up < 1"), group("up < 1")], "Tested: another rule has this name"),
        ([group("a + b > 1")], r"^2 errors in alert rules; correct them, or declare .*\n.*metric 'a'.*\n.*metric 'b'"),
    ],
)
def test_a_wrong_text_a_repeated_name_and_all_errors_are_named(groups: list[Group], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        check_rules(groups)


def test_a_wrong_expression_is_rejected() -> None:
    for expression, message in {
        "ray_rtp_train_los > 1": "Tested: unknown metric 'ray_rtp_train_los'; did you mean 'ray_rtp_train_loss'",
        'kube_node_info{nod="a"} > 1': "unknown label 'nod': kube_node_info has .*; did you mean 'node'",
        "sum by (jobs) (up) > 1": "unknown label 'jobs': the aggregated series have .*; did you mean 'job'",
        "sum by (node) (kube_node_info) / on (gpu) kube_node_info > 1": "unknown label 'gpu': the left side has node;",
        "kube_node_info / on (node) group_left (gpu) kube_node_info > 1": "unknown label 'gpu': the right side has",
        "sum(up) / kube_node_info > 1": "the sides match by labels that differ",
        'label_replace(up, "a", "$1", "b", "(.*)") > 1': "unknown label 'b': the replaced series have",
        "rate(ray_rtp_train_loss[5m]) > 1": r"rate\(\) of ray_rtp_train_loss, which is a gauge",
        "delta(ray_rtp_train_samples_total[5m]) > 1": r"delta\(\) of ray_rtp_train_samples_total, which is a counter",
        '{job="a"} > 1': "a selector without a metric's name",
        "ray_rtp_train_step_seconds > 1": "unknown metric 'ray_rtp_train_step_seconds'; did you mean",
        "sum by (run) (ray_rtp_train_loss": "unclosed left parenthesis in sum by",
        "recorded:later > 1": "unknown metric 'recorded:later'",
    }.items():
        with pytest.raises(RuleError, match=message):
            check_rules([group(expression)])


def test_a_limit_of_a_quantile_is_a_bound_of_its_buckets() -> None:
    """Between two bounds a quantile is a guess."""
    assert WRITE_SECONDS in CHECKPOINT_BUCKETS


def test_a_recorded_series_has_the_labels_of_its_expression() -> None:
    recording = Recording(name="run:loss:max", expression="max by (run) (ray_rtp_train_loss)")
    check_rules([group("run:loss:max > 1", summary="{{ $labels.run }} {{ $value }}", recordings=(recording,))])
    with pytest.raises(RuleError, match="unknown label 'rank': run:loss:max has run"):
        check_rules([group('run:loss:max{rank="1"} > 1', recordings=(recording,))])
