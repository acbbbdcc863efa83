"""Entry point of a rank as a plain process or under torchrun: `python -m training.launch.rank TASK_FILE`.

Reads rank and world size from torchrun's environment variables. Rank 0 writes the outcome next to the task file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from training.checkpoint.remote.uploader import UPLOAD_THREAD
from training.evidence import stack_on_death
from training.launch.processes import die_with_driver
from training.launch.task import OUTCOME_FILE, RankPlace, RankTask
from training.worker import run_rank


def main(arguments: list[str]) -> None:
    """Run the rank of this process.

    Raises:
        Exception: any error; the driver reads it from the run's folder (`training.failures`) or, if it could not be written, from stderr.
    """
    die_with_driver()
    task_file = Path(arguments[0])
    task = RankTask.load(json.loads(task_file.read_text(encoding="utf-8")))
    place = RankPlace.from_environment()
    with stack_on_death(task.run_directory, attempt=task.attempt, rank=place.rank):
        outcome = run_rank(task, place)
    if place.rank == 0:
        record = {"attempt": task.attempt, **outcome.dump()}
        partial = task_file.with_name(f"{OUTCOME_FILE}.partial")
        partial.write_text(json.dumps(record), encoding="utf-8")
        partial.replace(task_file.with_name(OUTCOME_FILE))


if __name__ == "__main__":
    main(sys.argv[1:])
    if any(thread.name == UPLOAD_THREAD for thread in threading.enumerate()):
        # Its request is not answered, and Python would wait for the timeout.
        sys.stdout.flush()
        os._exit(0)
