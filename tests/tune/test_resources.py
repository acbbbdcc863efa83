"""The plan of a search's resources: what a trial reserves, how many run, and what can never run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tune.spaces import search_settings
from training.config.schema import ScaleSettings
from training.errors import PlatformError, SettingsError
from training.preflight import Machine
from tune.resources import ACTOR_BYTES, HEAD, RANK_BYTES, Plan, plan_trials

EIGHT = [Machine(cpus=8, gpus=0)]
GPUS = [Machine(cpus=16, gpus=4)]


def plan(scale: dict[str, Any], nodes: list[Machine], *, memory: int | None = None, **search: object) -> Plan:
    settings = search_settings(**{"trials": 16, **search})  # type: ignore[arg-type]
    return plan_trials(ScaleSettings.model_validate(scale), settings, *nodes, memory=memory)


def refusal(scale: dict[str, Any], nodes: list[Machine], **options: Any) -> str:  # noqa: ANN401 - passed through
    with pytest.raises(PlatformError) as error:
        plan(scale, nodes, **options)
    return str(error.value)


def test_a_trial_is_an_actor_and_its_ranks_and_as_many_run_as_fit() -> None:
    assert plan({"workers": 2, "cpus_per_worker": 2}, EIGHT) == Plan(
        bundles=[{HEAD: 0.5}, {"CPU": 2.0}, {"CPU": 2.0}], concurrent=2, cpus=8, gpus=0
    )
    assert plan({"workers": 2}, [Machine(cpus=3, gpus=0)]).concurrent == 1
    assert plan({"workers": 1, "gpu": True}, GPUS).bundles[1] == {"CPU": 1.0, "GPU": 1.0}
    assert plan({"workers": 2, "gpu": True}, GPUS) == Plan(
        bundles=[{HEAD: 0.5}, *[{"CPU": 1.0, "GPU": 1.0}] * 2], concurrent=2, cpus=4, gpus=4
    )


def test_no_more_actors_fit_on_the_head_than_trials_are_to_run() -> None:
    for concurrent in (1, 2, 3, 7, 16, 64, 99):
        bundles = plan({"workers": 1}, [Machine(cpus=200, gpus=0)], concurrency=concurrent, trials=200).bundles
        part = round(bundles[0][HEAD] * 10_000)
        assert part * concurrent <= 10_000 < part * (concurrent + 1)


def test_fewer_run_if_there_are_fewer_trials_or_the_setting_says_so() -> None:
    assert plan({"workers": 1}, EIGHT, trials=3).concurrent == 3
    assert plan({"workers": 1}, EIGHT, concurrency=2).concurrent == 2
    assert plan({"workers": 1}, EIGHT, concurrency=20, trials=5).concurrent == 5


def test_a_rank_lies_on_one_node_and_a_trial_may_lie_on_several() -> None:
    odd = [Machine(cpus=3, gpus=0), Machine(cpus=3, gpus=0), Machine(cpus=1, gpus=0)]
    assert plan({"workers": 2, "cpus_per_worker": 2}, odd).concurrent == 1
    assert "7 CPUs" in refusal({"workers": 3, "cpus_per_worker": 2}, odd)
    assert "--set scale.workers=2 fits" in refusal({"workers": 3, "cpus_per_worker": 2}, odd)


def test_shares_of_gpus_lie_within_one() -> None:
    thirds = plan({"workers": 1, "gpu": True}, GPUS, gpus_per_worker=0.3, concurrency=7)
    assert (thirds.concurrent, thirds.gpus) == (7, 3)
    assert plan({"workers": 1, "gpu": True}, GPUS, gpus_per_worker=0.3).concurrent == 12
    assert plan({"workers": 1, "gpu": True}, [Machine(cpus=32, gpus=1)], gpus_per_worker=0.1).concurrent == 10
    assert plan({"workers": 1, "gpu": True}, GPUS, gpus_per_worker=0.5).bundles[1] == {"CPU": 1.0, "GPU": 0.5}


def test_two_ranks_do_not_share_a_gpu() -> None:
    with pytest.raises(SettingsError, match="which NCCL refuses") as error:
        plan({"workers": 2, "gpu": True}, GPUS, gpus_per_worker=0.5)
    assert "scale.workers=1" in error.value.remedy
    assert "needs scale.gpu=true" in refusal({"workers": 1}, EIGHT, gpus_per_worker=0.5)


def test_trials_that_do_not_fit_are_refused_with_the_numbers_and_the_nearest_that_do() -> None:
    two, uneven = [Machine(cpus=2, gpus=0)], [Machine(cpus=4, gpus=0), Machine(cpus=6, gpus=0)]
    mixed = [Machine(cpus=4, gpus=1), Machine(cpus=16, gpus=0)]
    cases: list[tuple[dict[str, Any], list[Machine], str]] = [
        ({"workers": 4, "cpus_per_worker": 1}, two, "needs 4 workers with 1 CPU each, and there are 2 CPUs and 0 GPUs"),
        ({"workers": 4, "cpus_per_worker": 1}, two, "--set scale.workers=2 fits"),
        ({"workers": 1, "cpus_per_worker": 8}, uneven, "at most 6 CPUs on one"),
        ({"workers": 1, "cpus_per_worker": 8}, uneven, "--set scale.cpus_per_worker=6 fits"),
        ({"workers": 1, "gpu": True}, EIGHT, "set scale.gpu=false"),
        ({"workers": 8, "gpu": True}, GPUS, "--set scale.workers=4 fits"),
        ({"workers": 1, "gpu": True, "cpus_per_worker": 8}, mixed, "--set scale.cpus_per_worker=4 fits"),
    ]
    for scale, nodes, said in cases:
        assert said in refusal(scale, nodes)
    several = refusal({"workers": 2}, EIGHT, concurrency=5)
    assert "5 trials cannot run at the same time: each needs 2 workers with 1 CPU each, and there are 8 CPUs" in several
    assert "--set search.concurrency=4 fits" in several


def test_the_memory_of_this_machine_bounds_the_trials() -> None:
    each = ACTOR_BYTES + 2 * RANK_BYTES
    assert plan({"workers": 2}, EIGHT, memory=3 * each + 1).concurrent == 3
    assert plan({"workers": 2}, EIGHT, memory=99 * each).concurrent == 4, "as many as have CPUs"
    said = refusal({"workers": 2}, EIGHT, memory=3 * each - 1, concurrency=3)
    assert said.startswith(
        "3 trials cannot run at the same time: each takes about 1104 MiB of memory, 224 MiB to drive it and"
    )
    assert "440 MiB for each worker before it has a model, and 3311 MiB are free" in said
    assert "--set search.concurrency=2 fits" in said
    none = refusal({"workers": 2}, EIGHT, memory=ACTOR_BYTES + RANK_BYTES + 1)
    assert none.startswith("16 trials cannot run at the same time: each takes about 1104 MiB of memory")
    assert "remedy: lower scale.workers, or end other programs" in none
