"""A job and the end of the Capacity Block it names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.errors import RefusedError
from platform_charts.jobs.capacity_end import lasting_capacity
from tests.platform_charts.jobs.targets import group_of, job, target_of, with_groups

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
BLOCK = with_groups(
    group_of("p5.48xlarge", name="block", capacity_type="CAPACITY_BLOCK", drain_before="2026-11-22T02:30:00+00:00")
)


def test_a_job_that_ends_before_its_block_or_on_capacity_without_an_end_is_accepted() -> None:
    lasting_capacity(job(group="block", deadline_hours=18.5), BLOCK, now=NOW)
    for group in (None, "a100"):
        lasting_capacity(job(group=group, deadline_hours=24 * 365), target_of("prod"), now=NOW)


def test_a_job_that_may_outlive_its_block_is_refused_with_both_times_and_a_remedy() -> None:
    with pytest.raises(RefusedError) as refusal:
        lasting_capacity(job(group="block", deadline_hours=24), BLOCK, now=NOW)
    assert "may run for 24 h, until 2026-11-22 08:00+00:00" in str(refusal.value)
    assert "has to be empty by 2026-11-22 02:30+00:00" in str(refusal.value)
    assert "--deadline-hours 18.5 at most" in refusal.value.remedy


@given(hours=st.floats(min_value=0.1, max_value=18.4))
def test_the_proposed_deadline_is_accepted(hours: float) -> None:
    now = NOW + timedelta(hours=hours)
    with pytest.raises(RefusedError) as refusal:
        lasting_capacity(job(group="block", deadline_hours=24), BLOCK, now=now)
    proposed = float(refusal.value.remedy.split()[1])
    lasting_capacity(job(group="block", deadline_hours=proposed), BLOCK, now=now)


def test_a_job_on_a_block_that_has_ended_is_refused() -> None:
    after = NOW + timedelta(days=2)
    with pytest.raises(RefusedError, match=r"had to be empty by 2026-11-22 02:30\+00:00; it is 2026-11-23"):
        lasting_capacity(job(group="block", deadline_hours=0.5), BLOCK, now=after)
