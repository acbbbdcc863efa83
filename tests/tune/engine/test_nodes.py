"""The wait for the nodes of a cluster; tests/tune/test_cluster_of_nodes.py waits for real ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tune.spaces import search_settings
from training.config.schema import ScaleSettings
from training.errors import PreflightError, SettingsError
from training.preflight import Machine
from tune.engine import nodes
from tune.engine.nodes import await_plan

HEAD, POD = Machine(cpus=0, gpus=0), Machine(cpus=2, gpus=0)
SCALE = ScaleSettings(address="auto", workers=2, start_timeout=3600)
SEARCH = search_settings(concurrency=2)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[Machine]]:
    """The nodes at each look, the last ones for ever."""
    looks: list[list[Machine]] = []

    def look() -> list[Machine]:
        return looks.pop(0) if len(looks) > 1 else looks[0]

    monkeypatch.setattr(nodes, "_nodes", look)
    monkeypatch.setattr(nodes, "_POLL_SECONDS", 0)
    return looks


def answers(*given: bool) -> Iterator[bool]:
    yield from given


def test_the_plan_is_made_when_all_concurrent_trials_fit(seen: list[list[Machine]]) -> None:
    seen += [[HEAD], [POD], [POD, POD]]
    said: list[str] = []
    plan = await_plan(SCALE, SEARCH, is_stopped=lambda: False, say=said.append)
    assert plan is not None
    assert (plan.concurrent, plan.cpus) == (2, 4)
    (line,) = said
    assert line.startswith("waiting for the cluster's nodes, 3600 s at most: a trial never fits: it needs 2 workers")


def test_without_concurrency_one_trial_is_enough(seen: list[list[Machine]]) -> None:
    seen += [[HEAD], [POD]]
    search = SEARCH.model_copy(update={"concurrency": None})
    plan = await_plan(SCALE, search, is_stopped=lambda: False, say=lambda _: None)
    assert plan is not None
    assert plan.concurrent == 1


def test_nodes_that_do_not_come_are_refused_with_the_numbers(seen: list[list[Machine]]) -> None:
    seen += [[POD]]
    scale = SCALE.model_copy(update={"start_timeout": 0.0})
    with pytest.raises(PreflightError, match=r"2 trials cannot run at the same time: .* there are 2 CPUs and 0 GPUs"):
        await_plan(scale, SEARCH, is_stopped=lambda: False, say=lambda _: None)


def test_a_search_that_is_asked_to_stop_waits_no_longer(seen: list[list[Machine]]) -> None:
    seen += [[POD]]
    stops = answers(False, False, True)
    assert await_plan(SCALE, SEARCH, is_stopped=lambda: next(stops), say=lambda _: None) is None


def test_settings_that_no_nodes_could_run_are_refused_at_once(seen: list[list[Machine]]) -> None:
    seen += [[POD]]
    search = SEARCH.model_copy(update={"gpus_per_worker": 0.5})
    with pytest.raises(SettingsError, match=r"needs scale\.gpu=true"):
        await_plan(SCALE, search, is_stopped=lambda: False, say=lambda _: None)
