"""`scale.environment`: which variables the settings may give to ranks, and that ranks have them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.training.launch.ranks import on_ranks
from tests.training.runs import small_settings
from training.config.schema import ScaleSettings
from training.launch.task import RankPlace, RankTask
from training.worker import run_rank


def test_a_variable_that_could_have_no_effect_or_must_not_be_recorded_is_refused() -> None:
    cases: list[tuple[str, object, str]] = [
        ("A-B", "x", "not a name of an environment variable"),
        ("", "x", "not a name of an environment variable"),
        ("AWS_SECRET_ACCESS_KEY", "x", "looks like a secret"),
        ("HF_TOKEN", "x", "looks like a secret"),
        ("LOCAL_RANK", 1, "the launcher's"),
        ("RAY_ADDRESS", "x", "the launcher's"),
        ("LD_PRELOAD", "x", "before a process starts"),
        ("PYTHONPATH", "x", "before a process starts"),
        ("A", "x\0y", "null character"),
        ("A", True, "valid string"),
        ("A", None, "valid string"),
    ]
    for name, value, reason in cases:
        with pytest.raises(ValidationError, match=reason):
            ScaleSettings.model_validate({"environment": {name: value}})
    for name in ("TOKENIZERS_PARALLELISM", "NCCL_IB_PKEY", "http_proxy", "OMP_NUM_THREADS"):
        assert ScaleSettings.model_validate({"environment": {name: "1"}}).environment == {name: "1"}


def _trained(place: RankPlace, task: RankTask, names: tuple[str, ...]) -> list[str | None]:
    os.environ[names[0]] = "of the process"
    run_rank(task, place)
    return [os.environ.get(name) for name in names]


def test_every_rank_has_the_variables_in_place_of_those_of_its_process(tmp_path: Path) -> None:
    variables = {"RTP_TEST_TEXT": "ours", "RTP_TEST_NUMBER": 2}
    settings = small_settings(
        scale={"launcher": "torchrun", "workers": 2, "environment": variables}, loop={"max_steps": 1}
    )
    task = RankTask(settings=settings, run_directory=tmp_path, attempt=0)
    assert on_ranks(2, _trained, task, tuple(variables)) == [["ours", "2"]] * 2
