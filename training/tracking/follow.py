"""The follower: `python -m training.tracking.follow RUN_DIRECTORY` delivers a run to MLflow while it goes on.

The driver starts it (`training.tracking.process`). It ends when its input does: then the run is over, and what is left is delivered or,
if the store stays away, left for `python -m training sync` or the next run. What became of it is its one line of output, JSON.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from observability.runlog import Notice, RunLogWriter
from training.config.schema import TrainingSettings
from training.errors import ExitStatus
from training.logs import configure
from training.tracking import system
from training.tracking.locations import registered_model, run_page, tracking_uri, without_password
from training.tracking.process import DeliveryReport
from training.tracking.state import TrackingState, delivering

if TYPE_CHECKING:
    from training.tracking.delivery import Delivery

NICENESS = 10
"""Added to the process's niceness: the ranks need the CPUs more."""

POLL_SECONDS = 1.0
"""Pause between two looks at the log."""

LONGEST_PAUSE = 15.0
"""Longest pause between two attempts while the store is away; they grow from one second, doubling."""

GIVE_UP_SECONDS = 10.0
"""Seconds after the run's end, or after the last success since, that a store may stay away."""

logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Follow one run to its end; the exit status is 0 where all of it was delivered and 1 otherwise."""
    run_directory = Path(arguments[0])
    os.nice(NICENESS)
    # Whatever a library prints must not pass for the report.
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    configure(run_directory / "logs" / "tracking.jsonl", run=run_directory.name)
    with delivering(run_directory, wait=True):
        report = _follow(run_directory)
    with answer, suppress(BrokenPipeError):  # the driver may be gone
        print(json.dumps(asdict(report)), file=answer, flush=True)
    if report.is_complete:
        _send_others(run_directory)
    return ExitStatus.DONE if report.is_complete else ExitStatus.FAILED


def _follow(run_directory: Path) -> DeliveryReport:
    # Imported while the ranks are busy, or still importing themselves; at low priority by now.
    from training.tracking.delivery import Delivery, last_start  # noqa: PLC0415

    has_hung_up = _watch_input()
    started = last_start(run_directory)
    assert started is not None, f"{run_directory} has no run that was started"
    delivery = Delivery(run_directory, started)
    settings = TrainingSettings.model_validate(started.settings)
    try:
        with system.sampling(run_directory, since=started.time):
            follower = Follower(run_directory, delivery, uri=tracking_uri(settings.tracking))
            follower.follow(has_hung_up)
        is_complete = follower.conclude()
    except Exception as error:
        # The run itself has nothing to do with it, and its log keeps everything.
        logger.exception("the follower failed")
        delivery.remember_problem(f"{type(error).__name__}: {error}")
        is_complete = False
    return _report(delivery.state, settings, is_complete=is_complete)


class Follower:
    """Delivers one run again and again, with patience while the store is away."""

    def __init__(self, run_directory: Path, delivery: Delivery, *, uri: str) -> None:
        self._directory = run_directory
        self._delivery = delivery
        self._uri = without_password(uri)
        self._failures = 0

    def follow(self, has_hung_up: Callable[[float], bool]) -> None:
        """Deliver what comes until the run is over. `has_hung_up` waits that many seconds for it and says whether it is."""
        is_warm = False
        while not has_hung_up(self._pause()):
            if self._try(is_over=False) and not is_warm:
                from training.tracking import model  # noqa: PLC0415 - torch, while there is time

                model.warm_up()
                is_warm = True

    def conclude(self) -> bool:
        """Deliver the rest, with bounded patience; returns whether MLflow has all of it now.

        A store that was away already gets one more chance and no more: the person is waiting, and nothing is lost.
        """
        deadline = time.monotonic() + (GIVE_UP_SECONDS if self._failures == 0 else 0)
        delivered = self._delivery.state.offset
        while not self._try(is_over=True):
            if self._delivery.state.offset > delivered:
                delivered, deadline = self._delivery.state.offset, time.monotonic() + GIVE_UP_SECONDS
            if time.monotonic() + self._pause() > deadline:
                return False
            time.sleep(self._pause())
        return True

    def _try(self, *, is_over: bool) -> bool:
        from training.tracking.client import Unavailable, in_words  # noqa: PLC0415 - imported long since

        try:
            self._delivery.advance(is_over=is_over)
        except Unavailable as error:
            self._failures += 1
            self._delivery.remember_problem(in_words(error))
            logger.warning("attempt %d to deliver to %s failed: %s", self._failures, self._uri, in_words(error))
            if self._failures == 1 and not is_over:
                self._notify(
                    "warning",
                    f"MLflow at {self._uri} cannot be reached; the run goes on, and what it logs is kept and sent later",
                )
            return False
        if self._failures and not is_over:
            self._notify("info", f"MLflow at {self._uri} is back; it has everything up to now")
        self._failures = 0
        return True

    def _pause(self) -> float:
        return float(min(POLL_SECONDS * 2 ** max(0, self._failures - 1), LONGEST_PAUSE))

    def _notify(self, level: str, message: str) -> None:
        with RunLogWriter(self._directory) as log:
            log.write(Notice(level=level, message=message))


def _watch_input() -> Callable[[float], bool]:
    """A function that waits up to so many seconds for the end of this process's input, and says whether it has come."""

    def has_hung_up(seconds: float) -> bool:
        is_ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(is_ready) and not os.read(sys.stdin.fileno(), 1)

    return has_hung_up


def _report(state: TrackingState, settings: TrainingSettings, *, is_complete: bool) -> DeliveryReport:
    return DeliveryReport(
        is_complete=is_complete,
        uri=without_password(state.uri),
        run_id=state.run_id,
        page=run_page(state.uri, experiment_id=state.experiment_id, run_id=state.run_id),
        model=f"{registered_model(settings)}/{state.model_version}" if state.model_version else "",
        problem=state.problem,
    )


def _send_others(run_directory: Path) -> None:
    """Deliver what earlier runs could not; the driver does not wait for it."""
    from training.tracking.sync import deliver_pending  # noqa: PLC0415

    for result in deliver_pending([path.parent for path in run_directory.parent.glob("*/events.jsonl")]):
        logger.info("earlier run %s: %s", result.run, result.message)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
