"""What the search relies on in Ray Tune beyond its documented interface, and the wait for the nodes of a cluster."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray import cloudpickle, tune
from ray.tune.execution import tune_controller
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from tests.tune.spaces import search_settings
from training.config.schema import ScaleSettings
from training.errors import PreflightError, SettingsError
from training.preflight import Machine
from tune.engine import engine, nodes
from tune.engine.nodes import await_plan
from tune.engine.ray_tune import Listener, Suggestions, plain_actors
from tune.history import SearchHistory
from tune.schedulers.recorded import RecordedScheduler


class Unpicklable:
    """Like what a driver's callbacks reach: a stream, a lock."""

    def __reduce__(self) -> str:
        raise TypeError("cannot be pickled")

    def __call__(self, *arguments: object, **options: object) -> None:
        """Nothing to do."""


def test_ray_can_pickle_what_belongs_to_the_driver() -> None:
    """The Tuner writes all of it into a file when it is made."""
    listener = Listener(on_result=Unpicklable(), on_failure=Unpicklable())
    scheduler = RecordedScheduler(
        FIFOScheduler(), name="none", mode="max", seed=0, history=SearchHistory(), on_stop=Unpicklable()
    )
    for adapter in (Suggestions(Unpicklable()), listener, scheduler):
        assert cloudpickle.loads(cloudpickle.dumps(adapter)) is not None


def test_actors_are_made_by_one_class_that_can_be_replaced() -> None:
    theirs = tune_controller._ActorClassCache
    assert "self._class_cache = _ActorClassCache()" in inspect.getsource(TuneController.__init__)
    assert [name for name in vars(theirs) if not name.startswith("_")] == ["get"]
    assert "runtime_env" in inspect.getsource(theirs.get)
    with plain_actors():
        made = tune_controller._ActorClassCache().get(tune.Trainable)
        assert isinstance(made, ray.actor.ActorClass)
    assert tune_controller._ActorClassCache is theirs


def test_ray_reads_the_variables_that_we_set() -> None:
    files = [file for package in ("tune", "air") for file in (Path(ray.__file__).parent / package).rglob("*.py")]
    sources = "\n".join(file.read_text(encoding="utf-8") for file in files)
    for variable in (*engine._ENVIRONMENT, "TUNE_MAX_PENDING_TRIALS_PG"):
        assert variable in sources, variable


def test_a_scheduler_is_asked_before_the_callbacks_hear_of_a_result() -> None:
    source = inspect.getsource(TuneController._process_trial_result)
    assert source.index("self._scheduler_alg.on_trial_result(") < source.index("self._callbacks.on_trial_result(")


def test_a_trainable_is_reset_restored_and_saved_by_our_methods() -> None:
    assert list(inspect.signature(tune.Trainable.reset_config).parameters)[:2] == ["self", "new_config"]
    assert "self.load_checkpoint(" in inspect.getsource(tune.Trainable.restore)
    assert "self.save_checkpoint(" in inspect.getsource(tune.Trainable.save)


def test_a_result_that_is_done_ends_a_trial_whose_actor_stays() -> None:
    """The scheduler is told that the trial is complete, and is not asked."""
    assert "result.get(DONE)" in inspect.getsource(Trial.should_stop)
    source = inspect.getsource(TuneController._process_trial_result)
    assert source.index("trial.should_stop(flat_result)") < source.index("self._scheduler_alg.on_trial_result(")
    source = inspect.getsource(TuneController._schedule_trial_stop)
    assert "if not exception and self._maybe_cache_trial_actor(trial):" in source


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
