"""Adapters between Ray Tune and the search: who suggests, who listens, and actors without a runtime environment.

This is the only module that uses Ray Tune's internals. tests/tune/engine/test_ray_contract.py checks what it relies on.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import tune
from ray.exceptions import RayTaskError
from ray.tune.execution import tune_controller
from ray.tune.search import Searcher

from training.errors import PlatformError
from tune.schedulers.results import CAUSE, FAILURE, TRIAL, Cause
from tune.trial.run import failure_text


class Suggestions(Searcher):  # type: ignore[misc] # untyped
    """Hands the search's trials to Ray Tune, one at a time."""

    def __init__(self, suggest: Callable[[], dict[str, Any] | None]) -> None:
        """Args: `suggest` returns the configuration of the next trial, None after the last."""
        super().__init__()
        self._suggest = suggest

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        """The configuration of the next trial."""
        del trial_id
        return self._suggest() or Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: FBT001
        """Nothing to learn: searchers read the search's history."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Suggestions, (_nothing,)  # in Ray Tune's own snapshot, which we do not use

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""


class OnFailure(Protocol):
    """Is told that a trial has failed."""

    def __call__(self, name: str, message: str, *, cause: Cause) -> None:
        """Args: the trial's name, why it failed, and what that is a matter of."""


class Listener(tune.Callback):  # type: ignore[misc] # untyped
    """Tells the search what its trials report, and which fail."""

    def __init__(self, *, on_result: Callable[[dict[str, Any]], None], on_failure: OnFailure) -> None:
        """Args: `on_result` is called with each evaluation, `on_failure` when a trial has failed."""
        self._on_result = on_result
        self._on_failure = on_failure

    def __reduce__(self) -> tuple[Any, ...]:
        return tune.Callback, ()  # as above

    def on_trial_result(self, *, result: dict[str, Any], **others: object) -> None:
        """A trial has reported an evaluation, or why it has failed."""
        del others
        if FAILURE in result:
            self._on_failure(result[TRIAL], result[FAILURE], cause=result[CAUSE])
        else:
            self._on_result(result)

    def on_trial_error(self, *, trial: Any, **others: object) -> None:  # noqa: ANN401 - Ray has no types
        """A trial's actor has failed."""
        del others
        self._on_failure(trial.config[TRIAL], _message_of(_error_of(trial)), cause="trial")


def _nothing() -> None:
    return None


def _error_of(trial: Any) -> BaseException | None:  # noqa: ANN401
    """What a trial's actor has raised, or Ray's error if the actor died.

    `Trial.get_pickled_error` reads the storage folder, where the file arrives only later.
    """
    file: str | None = trial.pickled_error_file
    if file is None or not Path(file).exists():
        return None
    error: BaseException = pickle.loads(Path(file).read_bytes())  # noqa: S301 - Ray Tune has just written it
    return error.cause if isinstance(error, RayTaskError) else error


def _message_of(error: BaseException | None) -> str:
    if isinstance(error, PlatformError):
        return failure_text(error)
    kind = "unknown" if error is None else type(error).__name__
    return f"the process that drives it failed: {kind}: {' '.join(str(error).split())}"


def quieten() -> None:
    """Keep Ray Tune from saying in the end which trials failed, which the search has said, and that its own state was not saved."""
    for name in ("ray.tune.tune", "ray.tune.execution.experiment_state"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class _PlainActors:
    """Makes actors that inherit this process's environment variables.

    Ray Tune passes variables in a runtime environment, which an agent of the node would set; a local cluster has none.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def get(self, trainable: Any) -> Any:  # noqa: ANN401 - a class
        """The actor class."""
        if trainable not in self._made:
            self._made[trainable] = ray.remote(trainable)
        return self._made[trainable]


@contextmanager
def plain_actors() -> Iterator[None]:
    """Within the block, Ray Tune starts actors without a runtime environment."""
    theirs = tune_controller._ActorClassCache  # noqa: SLF001
    tune_controller._ActorClassCache = _PlainActors  # noqa: SLF001
    try:
        yield
    finally:
        tune_controller._ActorClassCache = theirs  # noqa: SLF001
