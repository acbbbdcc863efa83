"""Rules keep their meaning when their durations are shortened."""

from __future__ import annotations

from pathlib import Path

import pytest

from observability.alerts.__main__ import FILE
from tests.engines.promtool import promtool
from tests.observability.alerts.live.faster_rules import faster, faster_rules

pytestmark = pytest.mark.monitoring


def test_durations_are_shortened_and_other_numbers_are_not(tmp_path: Path) -> None:
    for expression, faster_by_60 in {
        "sum by (run) (rate(x[10m])) > 0.3": "sum by (run)(rate(x{}[10s])) > 0.3",
        'x{a="b"} - x{a="b"} offset 15m > 10': 'x{a="b"} - x{a="b"} offset 15s > 10',
        "time() - max(x) > 900": "time() - max(x{}) > 15",
        "max(x) > time() - 3600": "max(x{}) > time() - 60",
        "1 - clamp((x - (x offset 1h <= x)) / 3600, 0, 1) > 0.6": (
            "1 - clamp((x{} - (x{} offset 1m <= x{})) / 60, 0, 1) > 0.6"
        ),
        "3600 * sum(rate(x[1h])) > 20": "3600 * sum(rate(x{}[1m])) > 20",
        "sum_over_time(x[1d:5m]) / 12 > y": "sum_over_time(x{}[24m:5s]) / 12 > y{}",
        "x / 3600 > 2": "x{} / 3600 > 2",
    }.items():
        assert faster(expression, minute=1) == faster_by_60
    (tmp_path / "rules.yaml").write_text(faster_rules(FILE, minute=1), encoding="utf-8")
    assert promtool("check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path) == ""
