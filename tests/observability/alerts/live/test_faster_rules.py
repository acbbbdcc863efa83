"""Rules keep their meaning when their durations are shortened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from observability.alerts.__main__ import FILE
from tests.engines.promtool import promtool
from tests.observability.alerts.live.faster_rules import faster, faster_rules

pytestmark = pytest.mark.monitoring

_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def durations(expression: str) -> list[int]:
    """Seconds of its ranges and offsets, in their order."""
    found = re.findall(r"(?:[\[:]|offset )((?:\d+[smhd])+)", expression)
    return [sum(int(number) * _UNIT[unit] for number, unit in re.findall(r"(\d+)([smhd])", one)) for one in found]


@pytest.mark.parametrize(
    ("expression", "faster_by_60"),
    [
        ("sum by (run) (rate(x[10m])) > 0.3", "sum by (run)(rate(x{}[10s])) > 0.3"),
        ('x{a="b"} - x{a="b"} offset 15m > 10', 'x{a="b"} - x{a="b"} offset 15s > 10'),
        ("time() - max(x) > 900", "time() - max(x{}) > 15"),
        ("max(x) > time() - 3600", "max(x{}) > time() - 60"),
        (
            "1 - clamp((x - (x offset 1h <= x)) / 3600, 0, 1) > 0.6",
            "1 - clamp((x{} - (x{} offset 1m <= x{})) / 60, 0, 1) > 0.6",
        ),
        ("3600 * sum(rate(x[1h])) > 20", "3600 * sum(rate(x{}[1m])) > 20"),
        ("histogram_quantile(0.9, rate(x[1h])) > 120", "histogram_quantile(0.9, rate(x{}[1m])) > 120"),
        ("sum_over_time(x[1d:5m]) / 12 > y", "sum_over_time(x{}[24m:5s]) / 12 > y{}"),
        ("x / 3600 > 2", "x{} / 3600 > 2"),
    ],
)
def test_durations_are_shortened_and_other_numbers_are_not(expression: str, faster_by_60: str) -> None:
    assert faster(expression, minute=1) == faster_by_60


def test_every_duration_of_the_delivered_rules_is_shortened() -> None:
    given = yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    shortened = yaml.safe_load(faster_rules(FILE, minute=3))["groups"]
    rules = [
        pair for old, new in zip(given, shortened, strict=True) for pair in zip(old["rules"], new["rules"], strict=True)
    ]
    for old, new in rules:
        assert durations(new["expr"]) == [seconds // 20 for seconds in durations(old["expr"])]
    assert {name for _, new in rules for name in new} == {name for old, _ in rules for name in old}


def test_promtool_accepts_the_shortened_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(faster_rules(FILE, minute=1), encoding="utf-8")
    assert promtool("check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path) == ""


def test_a_duration_without_whole_seconds_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"30\.0 s are no whole seconds"):
        faster("rate(x[30s])", minute=1)
