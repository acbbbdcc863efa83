"""Which checkpoints are kept."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.checkpoint.retention import Retention
from training.config.schema import CheckpointSettings

metrics_by_step = st.dictionaries(st.integers(0, 1000), st.none() | st.floats(), max_size=30)
rules = st.builds(Retention, keep_last=st.integers(1, 5), keep_best=st.integers(0, 5), higher_is_better=st.booleans())


@given(metrics_by_step, rules)
def test_the_newest_and_no_more_than_configured_are_kept(metrics: dict[int, float | None], rule: Retention) -> None:
    kept = rule.retained(metrics)
    assert set(sorted(metrics)[-rule.keep_last :]) <= kept <= metrics.keys()
    assert len(kept) <= rule.keep_last + rule.keep_best
    assert rule.retained({step: metrics[step] for step in kept}) == kept


@given(metrics_by_step, rules)
def test_no_dropped_checkpoint_is_better_than_a_kept_one(metrics: dict[int, float | None], rule: Retention) -> None:
    kept = rule.retained(metrics)
    sign = 1 if rule.higher_is_better else -1

    def rank(steps: set[int]) -> list[float]:
        values = (metrics[step] for step in steps)
        return sorted((sign * v for v in values if v is not None and not math.isnan(v)), reverse=True)

    best_kept, dropped = rank(set(kept))[: rule.keep_best], rank(set(metrics) - kept)
    assert not dropped or len(best_kept) == rule.keep_best
    assert not dropped or not best_kept or dropped[0] <= best_kept[-1]


def test_of_equal_metrics_the_earlier_step_is_kept_and_a_rule_that_would_drop_the_newest_refused() -> None:
    rule = Retention(keep_last=1, keep_best=1, higher_is_better=True)
    assert rule.retained({10: 0.9, 20: 0.9, 30: 0.1}) == {10, 30}
    with pytest.raises(ValueError, match="keep_last=0"):
        Retention(keep_last=0, keep_best=1, higher_is_better=True)


def test_the_best_metric_determines_the_ranking() -> None:
    settings = CheckpointSettings(keep_last=1, keep_best=1)
    for higher_is_better, best in ((True, 20), (False, 10)):
        rule = Retention.of(settings, higher_is_better=higher_is_better)
        assert rule.retained({10: 0.1, 20: 0.9, 30: 0.5}) == {best, 30}
