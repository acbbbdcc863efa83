"""The follower of a search: `python -m tune.tracking.follow SEARCH_FOLDER` delivers it to MLflow while it runs.

End of file on its standard input means that the search has ended; it then delivers the rest, and prints its report as a line of JSON. One
process follows all trials: each of its own would take 200 MB and two seconds of CPU.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from training.errors import ExitStatus
from training.logs import configure
from training.tracking.follow import GIVE_UP_SECONDS, NICENESS, wait_for_eof
from training.tracking.process import DeliveryReport, reserve_stdout
from training.tracking.state import StoreUnavailableError, delivery_lock
from tune.events import SearchLogReader
from tune.folder import SearchFolder
from tune.history import SearchHistory
from tune.tracking.parent import SearchDelivery

POLL_SECONDS = 2.0
"""Interval between deliveries."""

logger = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    """Follow a search to its end; the exit status is 0 if everything was delivered and 1 otherwise."""
    folder = SearchFolder(Path(arguments[0]))
    os.nice(NICENESS)
    output = reserve_stdout()
    configure(folder.path / "logs" / "tracking.jsonl", run=folder.name)
    with delivery_lock(folder.path, wait=True):
        report = _follow(folder)
    with output, suppress(BrokenPipeError):  # the driver may have exited
        print(json.dumps(asdict(report)), file=output, flush=True)
    return ExitStatus.DONE if report.is_complete else ExitStatus.FAILED


def _follow(folder: SearchFolder) -> DeliveryReport:
    reader, history = SearchLogReader(folder.path), SearchHistory()
    history.extend(reader.read_new())
    delivery = SearchDelivery(folder, history)
    problem = ""
    try:
        while not wait_for_eof(POLL_SECONDS):
            history.extend(reader.read_new())
            problem = _try(delivery, is_finished=False)
        history.extend(reader.read_new())
        deadline = time.monotonic() + (0 if problem else GIVE_UP_SECONDS)
        while problem := _try(delivery, is_finished=True):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
    except Exception as error:  # must not fail the search, whose log keeps everything
        logger.exception("the follower failed")
        problem = f"{type(error).__name__}: {error}"
    return delivery.report(is_complete=not problem, problem=problem)


def _try(delivery: SearchDelivery, *, is_finished: bool) -> str:
    """Deliver; returns the problem, if there is one."""
    try:
        delivery.deliver(is_finished=is_finished)
    except StoreUnavailableError as error:
        logger.warning("not delivered: %s", error)
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
