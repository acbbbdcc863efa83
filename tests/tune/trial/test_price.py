"""A trial knows the price of its workers where the search does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tune.config import SearchConfiguration
from tune.trial.trainable import SearchTask

VALUES = {"optimizer.learning_rate": 0.01}


@pytest.mark.parametrize(
    ("stop", "price"),
    [("dollars_per_worker_hour: 0.5", 1.0), ("trials: 16", None), ("trials: 16, run: {dollars_per_hour: 3}", 3.0)],
)
def test_a_trial_costs_what_its_workers_do(tmp_path: Path, stop: str, price: float | None) -> None:
    file = tmp_path / "my.yaml"
    search, _, own = stop.partition(", ")
    section = search if search.startswith("trials") else f"stop: {{{search}}}"
    space = "space: {optimizer.learning_rate: {log_uniform: [1e-4, 1e-1]}}"
    file.write_text(f"scale: {{workers: 2}}\n{own}\nsearch:\n  {section}\n  {space}\n", encoding="utf-8")
    task = SearchTask(
        directory=tmp_path,
        configuration=SearchConfiguration.read([file], environment={}),
        objectives={"validation_loss": "min"},
        code=None,
        is_local=True,
        is_continued=False,
    )
    assert task.settings("t001", VALUES).run.dollars_per_hour == price
