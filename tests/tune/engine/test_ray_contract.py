"""What the search relies on in Ray Tune beyond its documented interface."""

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

from tune.engine import engine
from tune.engine.ray_tune import Listener, Suggestions, plain_actors
from tune.history import SearchHistory
from tune.schedulers.recorded import RecordedScheduler


class Unpicklable:
    """Like what a driver's callbacks reach: a stream, a lock."""

    def __reduce__(self) -> str:
        raise TypeError("cannot be pickled")

    def __call__(self, *arguments: object, **options: object) -> None:
        """Nothing to do."""


def scheduler() -> RecordedScheduler:
    return RecordedScheduler(FIFOScheduler(), name="none", seed=0, history=SearchHistory(), on_stop=Unpicklable())


@pytest.mark.parametrize(
    "adapter",
    [Suggestions(Unpicklable()), Listener(on_result=Unpicklable(), on_failure=Unpicklable()), scheduler()],
    ids=["suggestions", "listener", "scheduler"],
)
def test_ray_can_pickle_what_belongs_to_the_driver(adapter: object) -> None:
    """The Tuner writes all of it into a file when it is made."""
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


def sources() -> Iterator[str]:
    for package in ("tune", "air"):
        for file in (Path(ray.__file__).parent / package).rglob("*.py"):
            yield file.read_text(encoding="utf-8")


@pytest.mark.parametrize("variable", [*engine._ENVIRONMENT, "TUNE_MAX_PENDING_TRIALS_PG"])
def test_ray_reads_the_variables_that_we_set(variable: str) -> None:
    assert any(variable in source for source in sources())


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
