"""What is looked for, and the days on which EC2 sells blocks and takes requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.lifecycle.capacity.block_rules import BLOCK_HOURS, durations_for, future_start, why_no_block
from infra.lifecycle.capacity.need import parse_start
from infra.spec.capacity import BLOCK_RECLAIM
from infra.spec.errors import SettingsError
from tests.infra.lifecycle.capacity.samples import NOW, need

DAY = timedelta(days=1)


def test_a_group_is_named_unless_there_is_only_one() -> None:
    alone = {"gpu_groups": [{"name": "l4", "instance_type": "g6.12xlarge", "max_size": 1}], "teams": []}
    assert need(None, changes=alone).instance.name == "g6.12xlarge"
    with pytest.raises(SettingsError, match="has several GPU groups") as several:
        need(None)
    assert several.value.remedy == "name one with GROUP=…: h100, t4"
    with pytest.raises(SettingsError, match="no such GPU group") as unknown:
        need("h10")
    assert unknown.value.remedy == "did you mean h100?"
    with pytest.raises(SettingsError, match="has no GPU group"):
        need(changes={"gpu_groups": [], "teams": []})


def test_the_start_is_now_a_day_in_utc_or_a_time_with_its_zone() -> None:
    starts = {
        None: NOW,
        "2026-12-01": datetime(2026, 12, 1, tzinfo=UTC),
        "2026-12-01T09:00+01:00": datetime(2026, 12, 1, 8, tzinfo=UTC),
        "2026-12-01T09:00Z": datetime(2026, 12, 1, 9, tzinfo=UTC),
        "2026-11-23": NOW,
    }
    assert {text: parse_start(text, now=NOW) for text in starts} == starts


def test_an_ambiguous_past_or_malformed_start_is_refused_with_what_to_write() -> None:
    refusals = {
        "has no time zone": ["2026-12-01T09:00"],
        "has passed; it is 2026-11-23 12:00 UTC": ["2026-11-22", "2026-11-23T11:59Z", "2026-11-23T12:30+01:00"],
        "neither a day nor a time": ["0001-01-01T00:00+14:00", "1.12.2026", "2026-02-30"],
    }
    for said, texts in refusals.items():
        for text in texts:
            with pytest.raises(SettingsError, match=said) as refused:
                parse_start(text, now=NOW)
            assert refused.value.remedy, text


@given(st.floats(min_value=0.5, max_value=BLOCK_HOURS[-1], allow_nan=False))
def test_a_block_is_asked_for_with_durations_that_ec2_takes_and_one_has_nodes_long_enough(hours: float) -> None:
    found = durations_for(hours)
    assert set(found) <= set(BLOCK_HOURS)
    assert min(found) >= hours
    longest = timedelta(hours=max(found)) - BLOCK_RECLAIM
    assert longest >= timedelta(hours=hours) or max(found) == BLOCK_HOURS[-1]


def test_blocks_last_days_up_to_two_weeks_and_weeks_from_then_on() -> None:
    durations = {23: (24,), 24: (24, 48), 330: (336,), 340: (504,), 5000: ()}
    assert {hours: durations_for(hours) for hours in durations} == durations


def test_why_ec2_sells_no_block_for_a_need() -> None:
    assert why_no_block(need(), now=NOW) == ""
    assert "not sold for g4dn" in why_no_block(need("t4"), now=NOW)
    assert "at most 64 instances, not 65" in why_no_block(need(nodes=65), now=NOW)
    assert "at most 4,368 hours (182 days), not 5,000" in why_no_block(need(hours=5000), now=NOW)
    assert why_no_block(need(starts=NOW + 56 * DAY), now=NOW) == ""
    late = why_no_block(need(starts=NOW + 57 * DAY), now=NOW)
    assert late == "EC2 sells blocks that begin within 8 weeks, by 2027-01-18 12:00 UTC"


def test_g_types_may_be_reserved_from_the_fifth_day_on_and_p_types_not() -> None:
    assert future_start(need("t4", nodes=8), now=NOW) == NOW + 5 * DAY + timedelta(hours=1)
    later = NOW + 30 * DAY
    assert future_start(need("t4", nodes=8, starts=later), now=NOW) == later
    assert "not for p5" in str(future_start(need(), now=NOW))
    assert "at least 32 vCPUs, not 28" in str(future_start(need("t4", nodes=7), now=NOW))
    assert "at most 120 days" in str(future_start(need("t4", nodes=8, starts=NOW + 121 * DAY), now=NOW))
