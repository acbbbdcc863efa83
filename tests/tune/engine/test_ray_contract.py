"""What the search relies on in Ray Tune beyond its documented interface."""

from __future__ import annotations

import inspect
from pathlib import Path

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


def test_ray_can_pickle_what_belongs_to_the_driver() -> None:
    """The Tuner writes all of it into a file when it is made."""
    listener = Listener(on_result=Unpicklable(), on_failure=Unpicklable())
    scheduler = RecordedScheduler(FIFOScheduler(), name="none", seed=0, history=SearchHistory(), on_stop=Unpicklable())
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
