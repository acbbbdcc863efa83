"""Wall time of a search, compared with the same trials run by hand and with Ray Tune's documented pattern for distributed trials.

All three train the same grid of learning rates, equally many trials at a time, and none stops a trial early.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from infra.spec.yaml_text import inline
from observability.benchmarks.measure import Comparison, measure_alternately, run_module
from training.config.load import render
from training.config.schema import TrainingSettings

BY_HAND_GOAL: Final = 1.1
DOCUMENTED_GOAL: Final = 0.7

_RATES: Final = (1e-3, 2e-3, 3e-3, 4e-3)


def compare(settings: TrainingSettings, *, concurrency: int, rounds: int, scratch: Path) -> list[Comparison]:
    """Compare `python -m tune search` with both baselines. The search and the runs by hand include MLflow, checkpoints and reports.

    Args:
        settings: of each trial, apart from its learning rate; one worker. By hand it trains without Ray, which starts fastest.
        concurrency: trials at a time.
        rounds: of the comparison.
        scratch: folder for the searches.
    """
    shared, job = scratch / "trial.yaml", scratch / "trial.json"
    shared.write_text(render(settings), encoding="utf-8")
    job.write_text(settings.model_dump_json(), encoding="utf-8")

    def search() -> float:
        directory = _emptied(scratch / "searches")
        section = {
            "algorithm": "grid",
            "concurrency": concurrency,
            "directory": str(directory),
            "space": {"optimizer.learning_rate": {"choice": list(_RATES)}},
        }
        config = scratch / "search.yaml"
        config.write_text(f"search: {inline(section)}\n", encoding="utf-8")
        return run_module("tune", "search", "--config", str(shared), "--config", str(config), "--name", "bench")[1]

    def by_hand() -> float:
        directory = _emptied(scratch / "runs")

        def train(rate: float) -> None:
            changes = (f"run.directory={directory}", f"optimizer.learning_rate={rate}", "scale.launcher=plain")
            arguments = [part for change in changes for part in ("--set", change)]
            run_module("training", "train", "--config", str(shared), "--name", f"rate-{rate}", *arguments)

        start = time.time()
        with ThreadPoolExecutor(concurrency) as pool:
            list(pool.map(train, _RATES))
        return time.time() - start

    def documented() -> float:
        arguments = [str(job), str(_emptied(scratch / "documented")), str(concurrency), *map(str, _RATES)]
        return run_module("observability.benchmarks.tune_documented", *arguments, RAY_AUTH_MODE="disabled")[1]

    ours, hand, pattern = measure_alternately(rounds, search, by_hand, documented)
    name = f"search, {len(_RATES)} trials, {concurrency} at a time"
    return [
        Comparison(name=f"{name}: by hand", unit="s", ours=ours, theirs=hand, goal=BY_HAND_GOAL),
        Comparison(name=f"{name}: Ray's pattern", unit="s", ours=ours, theirs=pattern, goal=DOCUMENTED_GOAL),
    ]


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder
