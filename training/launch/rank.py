"""Entry of a rank that is a process of its own: `python -m training.launch.rank TASK_FILE`, alone or under torchrun.

The place among the peers comes from torchrun's environment variables. Rank 0 leaves the outcome beside the task file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from training.launch.processes import die_with_parent
from training.launch.task import RankPlace, RankTask
from training.worker import run_rank

TASK_FILE = "task.json"
OUTCOME_FILE = "outcome.json"


def main(arguments: list[str]) -> int:
    """Run this process's rank; the exit status is 0 where it ended with an outcome and 1 where it failed.

    The traceback of a failure goes to the run's folder (`training.failures`), which the driver reads; torchrun needs only the status.
    """
    die_with_parent()
    task_file = Path(arguments[0])
    task = RankTask.load(json.loads(task_file.read_text(encoding="utf-8")))
    place = RankPlace.from_environment()
    try:
        outcome = run_rank(task, place)
    except Exception:  # noqa: BLE001 - recorded by run_rank
        return 1
    if place.rank == 0:
        record = {"attempt": task.attempt, **outcome.dump()}
        task_file.with_name(OUTCOME_FILE).write_text(json.dumps(record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
