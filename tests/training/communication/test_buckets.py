"""How DDP keeps and divides the gradients, and who keeps the optimizer's state, has no effect on the weights of two ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.communication.test_resume import train


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of a run with the defaults."""
    return train(tmp_path_factory.mktemp("usual"), 2, {}, steps=6)


@pytest.mark.parametrize(
    "communication",
    [{"static_graph": True}, {"gradient_as_bucket_view": False, "bucket_megabytes": 0.01}, {"shard_optimizer": True}],
    ids=["static graph", "copied gradients in small buckets", "a sharded optimizer"],
)
def test_the_weights_are_those_of_the_defaults(tmp_path: Path, usual: str, communication: dict[str, Any]) -> None:
    assert train(tmp_path, 2, communication, steps=6) == usual


def test_a_run_with_a_sharded_optimizer_resumes_from_one_without_and_back(tmp_path: Path, usual: str) -> None:
    for steps, is_sharded in ((2, True), (4, False), (6, True)):
        weights = train(tmp_path, 2, {"shard_optimizer": is_sharded}, steps=steps)
    assert weights == usual
