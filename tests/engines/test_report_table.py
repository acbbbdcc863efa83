"""The closing table of real parts."""

from __future__ import annotations

import pytest

from tests.engines import report_table


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the test's own: the session's is being filled in."""
    monkeypatch.setattr(report_table, "_rows", {})


def line(name: str) -> str:
    """The table's line of a part."""
    (found,) = [line for line in report_table.table() if line.startswith(name)]
    return found


def test_a_part_nobody_named_was_not_asked_for() -> None:
    assert line("GPU").split(maxsplit=1)[1] == "not asked for"


def test_a_part_that_is_missing_skips_the_test_and_says_what_would_enable_it() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"Prometheus: none on PATH; to enable: apt-get install prometheus"):
        report_table.skipped("Prometheus", "none on PATH", "apt-get install prometheus")
    assert line("Prometheus").split(maxsplit=1)[1].startswith("skipped")
    assert line("Prometheus").endswith("apt-get install prometheus")


def test_a_part_that_ran_once_has_run() -> None:
    report_table.ran("PostgreSQL")
    report_table.absent("PostgreSQL", "gone", "nothing")
    assert line("PostgreSQL").split(maxsplit=1)[1] == "ran"


def test_a_part_of_another_name_gets_a_row() -> None:
    report_table.ran("Quantum computer")
    assert line("Quantum computer").endswith("ran")


def test_what_another_process_knows_is_added_and_a_part_that_ran_in_either_has_run() -> None:
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
