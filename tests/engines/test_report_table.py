"""The table of real services at the end of a session."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.engines import report_table


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the session's table by an empty one."""
    monkeypatch.setattr(report_table, "_rows", {})


def line(name: str, skips: Mapping[str, int] | None = None) -> str:
    """The table's line of a service."""
    (found,) = [line for line in report_table.table(skips or {}) if line.startswith(name)]
    return found


def test_a_service_without_a_test_is_not_used() -> None:
    assert line("GPU").split(maxsplit=1)[1] == "not used"


def test_a_missing_service_skips_the_test_and_the_table_says_how_to_enable_it() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"Prometheus: none on PATH; to enable: apt-get install prometheus"):
        report_table.skipped("Prometheus", "none on PATH", "apt-get install prometheus")
    assert line("Prometheus").split(maxsplit=1)[1].startswith("skipped")
    assert line("Prometheus").endswith("apt-get install prometheus")


def test_the_table_counts_the_tests_that_a_missing_service_skips_and_tells_their_reason() -> None:
    with pytest.raises(pytest.skip.Exception) as skip:
        report_table.skipped("Prometheus", "none on PATH", "apt-get install prometheus")
    reason = str(skip.value)
    assert line("Prometheus", {reason: 12}).split(maxsplit=3)[1:3] == ["skipped", "12"]
    assert report_table.is_told(reason)


def test_the_table_does_not_tell_a_second_reason_or_that_of_a_service_that_ran_elsewhere() -> None:
    report_table.absent("Prometheus", "none on PATH", "apt-get install prometheus")
    with pytest.raises(pytest.skip.Exception) as skip:
        report_table.skipped("Prometheus", "too old", "apt-get install prometheus")
    assert not report_table.is_told(str(skip.value))
    report_table.add_rows({"Prometheus": ("ran", "", "")})
    assert not report_table.is_told("Prometheus: none on PATH; to enable: apt-get install prometheus")


def test_a_service_that_ran_stays_ran_after_a_skip() -> None:
    report_table.ran("PostgreSQL")
    report_table.absent("PostgreSQL", "gone", "nothing")
    assert line("PostgreSQL").split(maxsplit=1)[1] == "ran"


def test_a_service_without_a_fixed_row_gets_a_row() -> None:
    report_table.ran("Quantum computer")
    assert line("Quantum computer").endswith("ran")


def test_rows_of_another_process_are_merged_and_ran_overrides_skipped() -> None:
    report_table.ran("PostgreSQL")
    report_table.absent("Prometheus", "none on PATH", "apt-get install prometheus")
    report_table.absent("GPU", "none", "a GPU")
    report_table.add_rows(
        {
            "PostgreSQL": ("skipped", "gone", "nothing"),
            "Prometheus": ("ran", "", ""),
            "torchrun": ("skipped", "none", "torch"),
        }
    )
    outcomes = {
        name: line(name).removeprefix(name).split()[0] for name in ("PostgreSQL", "Prometheus", "GPU", "torchrun")
    }
    assert outcomes == {"PostgreSQL": "ran", "Prometheus": "ran", "GPU": "skipped", "torchrun": "skipped"}
