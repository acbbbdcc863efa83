"""The follower: `python -m training.tracking.follow RUN_DIRECTORY` delivers a run to MLflow while it trains.

The driver starts it (`training.tracking.process`). End of file on stdin means that the run has ended: the follower then delivers the
rest. If the store stays unavailable, it leaves the rest to `python -m training sync` or the next run. It prints its report as one line of
JSON.
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
from training.tracking.locations import redact_uri, registered_model, run_page, tracking_uri
from training.tracking.process import DeliveryReport, reserve_stdout
from training.tracking.state import StoreUnavailableError, TrackingState, delivery_lock
from training.tracking.sync import deliver_pending

if TYPE_CHECKING:
    from training.tracking.delivery import Delivery

NICENESS = 10
"""Added to the process's niceness: the ranks need the CPUs more."""

POLL_SECONDS = 1.0
"""Interval between reads of the log."""

MAX_BACKOFF_SECONDS = 15.0
"""Longest pause between retries while the store is unavailable; the backoff doubles from one second."""

GIVE_UP_SECONDS = 10.0
"""Seconds to retry after the end of the run, or after the last progress since."""

logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Follow one run to its end; the exit status is 0 if everything was delivered and 1 otherwise."""
    run_directory = Path(arguments[0])
    os.nice(NICENESS)
    output = reserve_stdout()
    configure(run_directory / "logs" / "tracking.jsonl", run=run_directory.name)
    with delivery_lock(run_directory, wait=True):
        report = _follow_run(run_directory)
    with output, suppress(BrokenPipeError):  # the driver may have exited
        print(json.dumps(asdict(report)), file=output, flush=True)
    if not report.is_complete:
        return ExitStatus.FAILED
    # The driver does not wait for the runs before this one.
    for result in deliver_pending([path.parent for path in run_directory.parent.glob("*/events.jsonl")]):
        logger.info("earlier run %s: %s", result.run, result.message)
    return ExitStatus.DONE


def _follow_run(run_directory: Path) -> DeliveryReport:
    from training.tracking.delivery import Delivery, last_start  # noqa: PLC0415 - imports MLflow, at low priority by now

    started = last_start(run_directory)
    assert started is not None, f"{run_directory} has no run that was started"
    delivery = Delivery(run_directory, started)
    settings = TrainingSettings.model_validate(started.settings)
    try:
        with system.sampling(run_directory, since=started.time):
            follower = Follower(run_directory, delivery, uri=tracking_uri(settings.tracking, run_directory))
            follower.follow(wait_for_eof)
        is_complete = follower.finish()
    except Exception as error:
        # Must not fail the run, whose log keeps everything.
        logger.exception("the follower failed")
        delivery.record_problem(f"{type(error).__name__}: {error}")
        is_complete = False
    finally:
        delivery.close()
    return _report(delivery.state, settings, is_complete=is_complete)


class Follower:
    """Delivers one run repeatedly, and backs off while the store is unavailable."""

    def __init__(self, run_directory: Path, delivery: Delivery, *, uri: str) -> None:
        self._directory = run_directory
        self._delivery = delivery
        self._uri = redact_uri(uri)
        self._failures = 0

    def follow(self, wait_for_end: Callable[[float], bool]) -> None:
        """Deliver new events until the run ends.

        Args:
            wait_for_end: waits up to that many seconds for the end of the run, and returns whether it has ended.
        """
        while not wait_for_end(self._backoff()):
            self._try_deliver(is_finished=False)

    def finish(self) -> bool:
        """Deliver the rest with limited retries; returns whether everything was delivered.

        Tries only once if the store was unavailable before: the user is waiting, and nothing is lost.
        """
        deadline = time.monotonic() + (GIVE_UP_SECONDS if self._failures == 0 else 0)
        delivered = self._delivery.state.offset
        while not self._try_deliver(is_finished=True):
            if self._delivery.state.offset > delivered:
                delivered, deadline = self._delivery.state.offset, time.monotonic() + GIVE_UP_SECONDS
            if time.monotonic() + self._backoff() > deadline:
                return False
            time.sleep(self._backoff())
        return True

    def _try_deliver(self, *, is_finished: bool) -> bool:
        try:
            self._delivery.deliver(is_finished=is_finished)
        except StoreUnavailableError as error:
            self._failures += 1
            logger.warning("attempt %d to deliver to %s failed: %s", self._failures, self._uri, error)
            if self._failures == 1 and not is_finished:
                self._notify(
                    "warning",
                    f"MLflow at {self._uri} is unavailable; the run continues, and its log will be delivered later",
                )
            return False
        if self._failures and not is_finished:
            self._notify("info", f"MLflow at {self._uri} is available again and up to date")
        self._failures = 0
        return True

    def _backoff(self) -> float:
        return float(min(POLL_SECONDS * 2 ** max(0, self._failures - 1), MAX_BACKOFF_SECONDS))

    def _notify(self, level: str, message: str) -> None:
        with RunLogWriter(self._directory) as log:
            log.write(Notice(level=level, message=message))


def wait_for_eof(seconds: float) -> bool:
    """Wait up to that many seconds for the end of file on stdin; returns whether it was reached."""
    is_ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(is_ready) and not os.read(sys.stdin.fileno(), 1)


def _report(state: TrackingState, settings: TrainingSettings, *, is_complete: bool) -> DeliveryReport:
    return DeliveryReport(
        is_complete=is_complete,
        uri=redact_uri(state.uri),
        run_id=state.run_id,
        page=run_page(state.uri, experiment_id=state.experiment_id, run_id=state.run_id),
        model=f"{registered_model(settings)}/{state.model_version}" if state.model_version else "",
        problem=state.problem,
        lacks=state.lacks,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
