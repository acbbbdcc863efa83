"""The command line of `make bench`."""

from __future__ import annotations

import pytest

from observability.benchmarks.options import comparisons


@pytest.mark.parametrize("option", ["--rounds", "--workers", "--megabytes"])
def test_numbers_that_measure_nothing_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        comparisons().parse_args([option, "0"])
    assert f"argument {option}: must be at least 1, not 0" in capsys.readouterr().err
