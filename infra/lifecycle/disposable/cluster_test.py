"""`make cluster-test`: a throw-away cluster that is tested and taken down again, whatever happens in between."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from infra.spec.errors import ExitStatus, PlatformError
from infra.spec.output import outliving_the_terminal
from infra.spec.signals import ENDINGS, handling, interrupting

_MINUTE = 60.0


@dataclass(frozen=True)
class Step:
    """A part of the test.

    Attributes:
        name: what it does, e.g. `up`.
        run: does it; returns an exit status.
    """

    name: str
    run: Callable[[], int]


@dataclass(kw_only=True)
class ClusterTest:
    """One test of a cluster that does not exist yet.

    Attributes:
        steps: what is done with the cluster, in order; the first that fails is the last.
        down: takes the cluster down; returns an exit status.
        keeps_failed: whether a cluster that failed is kept, to look at it.
        kept: how to take the cluster down later, a line each.
        say: prints a line.
        clock: seconds since any fixed time.
    """

    steps: Sequence[Step]
    down: Callable[[], int]
    keeps_failed: bool
    kept: Sequence[str]
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    took: list[str] = field(default_factory=list)

    def run(self) -> int:
        """Run the steps, then take the cluster down, also after Ctrl-C; a second Ctrl-C ends the teardown as well.

        Returns:
            the exit status of the step that failed, else of the teardown.

        Raises:
            PlatformError: a step was refused; the cluster is down, unless it is kept.
            KeyboardInterrupt: a signal came; the same.
            BaseException: whatever else ended a step; the same.
        """
        with outliving_the_terminal(), interrupting(ENDINGS):
            try:
                status = self._test()
            except BaseException as error:
                self._end(_cause(error))
                raise
            down = self._end(None if status == ExitStatus.DONE else f"exit status {status}")
        return status or down

    def _test(self) -> int:
        for step in self.steps:
            status = self._timed(step)
            if status:
                return status
        return ExitStatus.DONE

    def _end(self, failure: str | None) -> int:
        """Take the cluster down, unless it failed and is to be kept; says how long everything took."""
        if failure is not None:
            self.say(f"the test failed: {failure}")
        if failure is not None and self.keeps_failed:
            status: int = ExitStatus.DONE
            self._say_kept("it is kept and billed until you take it down:")
        else:
            status = self._take_down()
        self.say("; ".join(self.took))
        return status

    def _take_down(self) -> int:
        is_down = False
        try:
            # The shell and the kernel may both send it when a terminal is closed, and the first has interrupted the test.
            with handling((signal.SIGHUP,), lambda _: None):
                status = self._timed(Step("down", self.down))
            is_down = status == ExitStatus.DONE
        finally:
            if not is_down:
                self._say_kept("it is not down, and billed until you take it down:")
        return status

    def _timed(self, step: Step) -> int:
        self.say(f"== {step.name}")
        began = self.clock()
        try:
            return step.run()
        finally:
            self.took.append(f"{step.name} {(self.clock() - began) / _MINUTE:.1f} min")

    def _say_kept(self, first: str) -> None:
        for line in (first, *self.kept):
            self.say(line)


def _cause(error: BaseException) -> str:
    """What ended a step, for a line."""
    match error:
        case KeyboardInterrupt():
            return "interrupted"
        case PlatformError():
            return f"{'refused' if error.status == ExitStatus.REFUSED else 'failed'}: {error.args[0]}"
        case _:
            return f"{type(error).__name__}: {error}"
