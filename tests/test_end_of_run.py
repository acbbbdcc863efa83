"""What a test session prints at once and last, on a small generated suite."""

from __future__ import annotations

import pytest

from tests.small_suite import Suite

_ENDS = """
import pytest
from tests.engines import report_table

@pytest.mark.parametrize("one", range(3))
def test_of_a_service(one):
    report_table.skipped("Prometheus", "none on PATH", "apt-get install prometheus")

@pytest.mark.skipif(True, reason="this machine has no GPU")
@pytest.mark.parametrize("one", range(2))
def test_of_a_device(one): pass

def test_of_another_kind():
    pytest.skip("needs root")

def test_with_a_name_that_fills_a_line_of_eighty_columns_so_that_nothing_follows_it():
    assert 1 + 1 == 3

def test_of_a_program():
    assert False, "\\n".join(f"line {number}" for number in range(40))

@pytest.fixture
def broken():
    raise OSError("no such device")

def test_of_a_fixture(broken): pass
"""


@pytest.fixture(scope="module", params=["0", "2"], ids=["one process", "two processes"])
def printed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines that the suite prints."""
    suite = Suite(tmp_path_factory.mktemp("suite"), ends=_ENDS, unreadable="import no_such_module")
    output, _ = suite.start("-n", request.param, "--continue-on-collection-errors").communicate(timeout=120)
    return output.splitlines()


def test_failures_are_printed_at_once(printed: list[str]) -> None:
    before = printed[: printed.index(next(line for line in printed if line.startswith("=") and " FAILURES " in line))]
    at = [
        number for number, line in enumerate(before) if line.startswith("FAILED suite/test_ends.py::test_of_a_program")
    ]
    assert len(at) == 1
    assert before[at[0] + 1] == "    AssertionError: line 0"
    assert "FAILED suite/test_ends.py::test_of_a_fixture (setup)" in before


def after(title: str, printed: list[str]) -> list[str]:
    """The lines of a section and of those after it."""
    (start,) = [number for number, line in enumerate(printed) if line.startswith("=") and f" {title} " in line]
    return printed[start + 1 :]


def test_failures_and_errors_come_last_with_both_ends_of_their_messages(printed: list[str]) -> None:
    failed, *lines, counts = after("failures and errors", printed)
    assert failed.startswith("FAILED suite/test_ends.py::test_with_a_name_that_fills_a_line")
    assert lines[:2] == ["    assert (1 + 1) == 3", "FAILED suite/test_ends.py::test_of_a_program"]
    assert lines[2:4] == ["    AssertionError: line 0", "      line 1"]
    assert "    … 35 lines …" in lines
    assert lines[-2:] == ["ERROR suite/test_ends.py::test_of_a_fixture (setup)", "    OSError: no such device"]
    assert "2 failed" in counts


def test_a_file_that_cannot_be_imported_is_among_the_errors(printed: list[str]) -> None:
    lines = after("failures and errors", printed)
    place = lines.index("ERROR suite/test_unreadable.py")
    assert "    E   ModuleNotFoundError: No module named 'no_such_module'" in lines[place:]


def test_the_reason_of_every_skip_is_printed_once_with_the_number_of_its_tests(printed: list[str]) -> None:
    services = after("real services", printed)
    (prometheus,) = [line for line in services if "none on PATH" in line]
    assert prometheus.split(maxsplit=3)[:3] == ["Prometheus", "skipped", "3"]
    others = after("other tests skipped", printed)
    assert others[:2] == ["   2  this machine has no GPU", "   1  needs root"]
    assert "failures and errors" in others[2]
