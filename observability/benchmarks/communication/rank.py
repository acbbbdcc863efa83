"""The program of a rank, under torchrun: `python -m observability.benchmarks.communication.rank FOLDER`.

It trains the runs `FOLDER/0`, `FOLDER/1` and so on, each once its task is there, until it is killed. A process for each would spend more
time on imports than on steps.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from training.launch.processes import die_with_driver
from training.launch.task import RankPlace, RankTask
from training.worker import run_rank

TASK_FILE = "task.json"
"""The task of a run, in its folder; written in one go, when the ranks are to begin."""

_POLL_SECONDS = 0.02


def done_file(rank: int) -> str:
    """Name of the file that a rank writes to a run's folder at its end."""
    return f"done-{rank}"


def main(folder: Path) -> None:
    """Train every run of the folder."""
    die_with_driver()
    # The store of torchrun's agent still has the keys of the run before: rank 0 serves one for each run, at a port of its own.
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    place = RankPlace.from_environment()
    for number in itertools.count():
        run = folder / str(number)
        while not (run / TASK_FILE).exists():
            time.sleep(_POLL_SECONDS)
        task = RankTask.load(json.loads((run / TASK_FILE).read_text(encoding="utf-8")))
        run_rank(task, replace(place, master_port=place.master_port + 1 + number))
        (run / done_file(place.rank)).touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
