"""What goes to the ranks and comes back survives the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training.runs import small_settings
from training.launch.task import RankPlace, RankTask


def test_a_task_is_the_same_on_the_far_side_of_a_process_boundary() -> None:
    task = RankTask(
        settings=small_settings(optimizer={"betas": (0.8, 0.99)}, data={"path": "/data"}),
        run_directory=Path("/runs/one"),
        attempt=2,
    )
    assert RankTask.load(json.loads(json.dumps(task.dump()))) == task


def test_a_rank_takes_its_place_from_torchruns_variables() -> None:
    place = RankPlace.from_environment(
        {
            "RANK": "5",
            "WORLD_SIZE": "8",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "4",
            "MASTER_ADDR": "head",
            "MASTER_PORT": "29400",
        }
    )
    assert place == RankPlace(rank=5, world=8, local_rank=1, local_world=4, master_address="head", master_port=29400)


def test_a_process_without_them_is_a_world_of_one() -> None:
    place = RankPlace.from_environment({})
    assert (place.rank, place.world, place.local_world) == (0, 1, 1)


def test_a_place_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="first"):
        RankPlace.from_environment({"RANK": "first"})
