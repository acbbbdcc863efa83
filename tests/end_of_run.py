"""What a test session prints: each failure at once, and last the real services, why other tests were skipped, and again what failed.

Where only the last screens of a run are kept, they hold the failures. pytest's own summary would list every skipped test among them, and
cuts a line at the width of the terminal: without one that is 80 columns, which the name of a test fills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from tests.engines import report_table

_WIDTH = 200
_ENDS = 3
"""Lines of a message that are shown from its start, and from its end, where the cause of a failed program stands."""

Report = pytest.TestReport | pytest.CollectReport


class _Failures:
    """Prints failures while other tests go on, which may take an hour."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)  # after the terminal reporter's letter
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure, without its traceback."""
        if report.failed:
            self._reporter.write("\n" + "\n".join(failure_lines("FAILED", report)) + "\n")


@pytest.hookimpl(trylast=True)  # once there is a terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    """Print failures at once, but not from processes whose tests another one reports."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(reporter))


@pytest.hookimpl(trylast=True)  # after the table of the coverage
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the services, the reasons of other skips, and the failures."""
    skips = Counter(reason(report) for report in terminalreporter.getreports("skipped"))
    sections = {
        "real services": report_table.table(skips),
        "other tests skipped": skip_lines(skips),
        "failures and errors": [
            line
            for word, stat in (("FAILED", "failed"), ("ERROR", "error"))
            for report in terminalreporter.getreports(stat)
            for line in failure_lines(word, report)
        ],
    }
    for title, lines in sections.items():
        if lines:
            terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)


def reason(report: Report) -> str:
    """The reason of a skip."""
    assert isinstance(report.longrepr, tuple)
    return report.longrepr[2].removeprefix("Skipped: ")


def skip_lines(skips: Mapping[str, int]) -> list[str]:
    """A line for each reason that the table of services does not have, with the number of its tests; the commonest first.

    Args:
        skips: number of tests by reason.
    """
    others = {text: number for text, number in skips.items() if not report_table.is_told(text)}
    return [_cut(f"{number:>4}  {' '.join(text.split())}") for text, number in sorted(others.items(), key=_commonest)]


def failure_lines(word: str, report: Report) -> list[str]:
    """The test and the message of its failure, of a long one both ends."""
    phase = f" ({report.when})" if report.when not in {"call", "collect"} else ""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(report.longrepr if crash is None else crash.message)
    return [f"{word} {report.nodeid}{phase}", *(f"    {_cut(line)}" for line in _both_ends(message.splitlines()))]


def _both_ends(lines: Sequence[str]) -> list[str]:
    written = [line for line in lines if line.strip()]
    left_out = len(written) - 2 * _ENDS
    return written if left_out <= 1 else [*written[:_ENDS], f"… {left_out} lines …", *written[-_ENDS:]]


def _commonest(item: tuple[str, int]) -> tuple[int, str]:
    text, number = item
    return -number, text


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
