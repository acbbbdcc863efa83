"""What a test session prints: how many tests and how long, progress, each failure at once, and last why tests were skipped and what failed.

Where only the last screens of a run are kept, they hold the failures. pytest's own summary would list every skipped test among them, and
cuts a line at the width of the terminal: without one that is 80 columns, which the name of a test fills.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.dsession import Interrupted

from tests import END_VARIABLE
from tests.engines import report_table
from tests.selection import PLAN, Plan, typical_seconds

INTERRUPTED = 130
"""Exit status of a session that a person stopped."""

_WIDTH = 200
_ENDS = 3
"""Lines of a message that are shown from its start, and from its end, where the cause of a failed program stands."""

_EVERY_SECONDS = 15

_FEW = 0.1
"""Share of the work that is too little to judge the speed of the machine by."""

_SERVICES = "real_services"
_PROGRESS = "progress"

_END = os.environ.pop(END_VARIABLE, "")

Report = pytest.TestReport | pytest.CollectReport


class _Planned:
    def pytest_tests_planned(self, plan: Plan, processes: int) -> None:
        """Called once it is known which tests run, before the first starts."""


class Progress:
    """Prints the plan, lines of progress in place of letters, and failures while other tests run."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter) -> None:
        self._config = config
        self._reporter = reporter
        self._plan = Plan(0, 0, 0.0)
        self._processes = 1
        self._started = self._printed = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._failed: set[str] = set()
        self._typical = typical_seconds(is_core=config.getoption("all").number == 0)
        self._done_seconds = 0.0
        self.is_stopped = False

    @pytest.hookimpl(trylast=True)  # after the header
    def pytest_sessionstart(self) -> None:
        """Print a line before the worker processes collect tests, which prints nothing."""
        if self._config.getoption("numprocesses", default=None):
            self._reporter.write_line("collecting the tests …")

    def pytest_tests_planned(self, plan: Plan, processes: int) -> None:
        """Print how many tests run, what is left out, and about how long it takes."""
        self._plan, self._processes = plan, processes
        self._started = self._printed = time.monotonic()
        self._reporter.write_line(plan.line(processes))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Print the plan of a session without other processes."""
        plan = session.config.stash.get(PLAN, None)
        if plan is not None and not session.config.getoption("numprocesses", default=None):
            self.pytest_tests_planned(plan, 1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Report) -> tuple[str, str, str] | None:
        """Print no letter for a test of a planned session."""
        if self._config.get_verbosity() > 0 or report.when == "collect":
            return None
        if report.passed:
            return ("passed" if report.when == "call" else "", "", "")
        return ("skipped", "", "") if report.skipped else None

    @pytest.hookimpl(trylast=True)  # after the terminal reporter
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure with a line of reason, and now and then how far the session is."""
        if report.failed:
            if report.nodeid not in self._failed:
                self._failed.add(report.nodeid)
                self._outcomes["failed"] += 1
                self._outcomes["passed"] -= report.when == "teardown"
            word, reason, *_ = [*failure_lines("FAILED", report), ""]
            self._reporter.write_line(f"\n{word}: {reason.strip()}")
        elif report.skipped or report.when == "call":
            self._outcomes["skipped" if report.skipped else "passed"] += 1
            self._done_seconds += self._typical.get(report.nodeid.split("::")[0], 0.0)
        if time.monotonic() - self._printed >= _EVERY_SECONDS and self._config.get_verbosity() <= 0:
            self._printed = time.monotonic()
            self._reporter.write_line(self._line())

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[KeyboardInterrupt]) -> None:
        """Print one line in place of the summary."""
        if isinstance(
            excinfo.value, pytest.Session.Interrupted | Interrupted
        ):  # by errors of the collection, or by `-x`
            return
        self.is_stopped = True
        passed = self._outcomes["passed"]
        self._reporter.write_line(f"\nstopped by you; {passed:,} of {self._plan.selected:,} passed")
        self._config.pluginmanager.unregister(self._reporter)

    def _line(self) -> str:
        done = self._outcomes.total()
        elapsed = time.monotonic() - self._started
        words = [f"{done:,} of {self._plan.selected:,} tests"]
        if failed := self._outcomes["failed"]:
            words.append(f"{failed} failed")
        # How much of the work is done: the dearest tests run first, so their number says little.
        share = min(1.0, self._done_seconds / self._plan.seconds) if self._plan.seconds else done / self._plan.selected
        is_known = self._plan.seconds and share < _FEW
        left = self._plan.seconds / self._processes - elapsed if is_known else elapsed * (1 - share) / max(share, _FEW)
        return f"{', '.join(words)}; {elapsed / 60:.1f} min, about {max(left, 30.0) / 60:.1f} min left"


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hook that the process that distributes tests calls."""
    pluginmanager.add_hookspecs(_Planned)


@pytest.hookimpl(trylast=True)  # once there is a terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    """Print, but not from processes whose tests another one reports."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config, reporter), _PROGRESS)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over this process's services; give a session that was stopped its exit status."""
    handed_over: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if handed_over is not None:
        handed_over[_SERVICES] = [sorted(report_table.RAN), sorted(report_table.ABSENT)]
    else:
        progress: Progress | None = session.config.pluginmanager.get_plugin(_PROGRESS)
        if progress is not None and progress.is_stopped:
            session.exitstatus = INTERRUPTED
        if _END:
            Path(_END).touch()


def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - xdist has no type for it
    """Merge the services of a finished process; one that was killed sends none."""
    ran, absent = getattr(node, "workeroutput", {}).get(_SERVICES, ((), ()))
    report_table.RAN.update(ran)
    report_table.ABSENT.update(absent)


@pytest.hookimpl(trylast=True)  # after the table of the coverage
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the services, the reasons of skips, and the failures."""
    if report_table.RAN:
        terminalreporter.write_line(f"real services: {', '.join(sorted(report_table.RAN))}")
    skips = Counter(reason(report) for report in terminalreporter.getreports("skipped"))
    sections = {
        "skipped": [*skip_lines(skips), *(_cut(f"      {text}") for text in sorted(report_table.ABSENT))],
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
    """A line for each reason with the number of its tests, the commonest first.

    Args:
        skips: number of tests by reason.
    """
    return [
        _cut(f"{number:>4}  {' '.join(text.split())}")
        for text, number in sorted(skips.items(), key=lambda item: (-item[1], item[0]))
    ]


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


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
