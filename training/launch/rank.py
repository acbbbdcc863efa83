"""Entry of a rank that is a process of its own: `python -m training.launch.rank TASK_FILE`, alone or under torchrun.

The place among the peers comes from torchrun's environment variables. Rank 0 leaves the outcome beside the task file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from training.launch.processes import die_with_driver
from training.launch.task import RankPlace, RankTask
from training.worker import run_rank

TASK_FILE = "task.json"
OUTCOME_FILE = "outcome.json"


def main(arguments: list[str]) -> None:
    """Run this process's rank.

    Raises:
        Exception: whatever went wrong; the driver reads it from the run's folder (`training.failures`), or, where not even that could
            be written, from what the interpreter prints.
    """
    die_with_driver()
    task_file = Path(arguments[0])
    task = RankTask.load(json.loads(task_file.read_text(encoding="utf-8")))
    place = RankPlace.from_environment()
    outcome = run_rank(task, place)
    if place.rank == 0:
        record = {"attempt": task.attempt, **outcome.dump()}
        task_file.with_name(OUTCOME_FILE).write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
