"""The times of cron expressions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.errors import SettingsError
from training.cluster.cron import parse_cron, zone_named

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)  # a Sunday


def test_the_next_time_is_the_first_that_matches() -> None:
    for text, after in (
        ("30 9 * * *", "2026-11-23 09:30"),
        ("*/15 8-10 * * *", "2026-11-22 09:45"),
        ("10/20 * * * *", "2026-11-22 09:50"),
        ("5,35 * * * *", "2026-11-22 09:35"),
        ("0 0 * * mon-fri", "2026-11-23 00:00"),
        ("0 0 29 feb *", "2028-02-29 00:00"),
        # A day that both fields limit matches either; a star limits nothing, but with a step above 1.
        ("0 0 13 * fri", "2026-11-27 00:00"),
        ("0 0 13 * *", "2026-12-13 00:00"),
        ("0 0 */2 * tue", "2026-11-23 00:00"),
        ("0 0 */1 * tue", "2026-11-24 00:00"),
        ("@weekly", "2026-11-29 00:00"),
        ("@yearly", "2027-01-01 00:00"),
    ):
        assert parse_cron(text).next_after(NOW, UTC) == datetime.fromisoformat(after).replace(tzinfo=UTC), text
    assert parse_cron("0 0 30 2 *").next_after(NOW, UTC) is None


def test_hours_are_those_of_the_zone_whatever_its_offset() -> None:
    berlin, nightly = zone_named("Europe/Berlin"), parse_cron("30 2 * * *")
    assert nightly.next_after(NOW, berlin) == datetime(2026, 11, 23, 1, 30, tzinfo=UTC)
    summer = datetime(2026, 7, 1, tzinfo=UTC)
    assert nightly.next_after(summer, berlin) == datetime(2026, 7, 1, 0, 30, tzinfo=UTC)
    # On the last Sunday of October 02:30 comes twice.
    autumn = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert nightly.next_after(autumn, berlin) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    # On the last Sunday of March the clock goes from 02:00 to 03:00.
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert nightly.next_after(spring, berlin) == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)


@given(minute=st.integers(0, 59), step=st.integers(1, 59), seconds=st.integers(0, 10**9))
def test_the_next_time_is_later_and_nothing_that_matches_is_skipped(minute: int, step: int, seconds: int) -> None:
    cron, moment = parse_cron(f"{minute}/{step} * * * *"), NOW + timedelta(seconds=seconds)
    found = cron.next_after(moment, UTC)
    assert found is not None
    between = int((found - moment) / timedelta(minutes=1))
    skipped = [found - timedelta(minutes=back) for back in range(1, between)]
    assert found > moment
    assert found.minute in cron.minutes
    assert [one for one in skipped if one > moment and one.minute in cron.minutes] == []


def test_an_invalid_expression_and_an_unknown_zone_are_refused() -> None:
    wrong = ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "*/0 * * * *"]
    wrong += ["5-1 * * * *", "* * * foo *", "@every 1h", "*-5 * * * *", "1,,2 * * * *", "-1 * * * *", "²  * * * *"]
    for text in wrong:
        with pytest.raises(SettingsError, match="schedule"):
            parse_cron(text)
    for name in ("Berlin", "", "../etc/passwd"):
        with pytest.raises(SettingsError, match="unknown time zone"):
            zone_named(name)
