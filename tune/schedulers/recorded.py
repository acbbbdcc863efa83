"""A scheduler that knows what earlier drivers of its search have seen, draws from the search's seed, and reports what it stops."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import Any

import numpy as np
from ray.tune.schedulers import FIFOScheduler, HyperBandScheduler, PopulationBasedTraining, TrialScheduler

from observability.event_log import Event
from observability.objective_metrics import is_better
from tune.events import TrialEnded, TrialReported
from tune.history import SearchHistory, TrialHistory
from tune.schedulers.results import EPOCH, FAILURE, TRIAL, result_of
from tune.settings import Mode

_CONTINUE: str = TrialScheduler.CONTINUE
_STOP: str = TrialScheduler.STOP
_WORSE_THAN_ANY = 1e30
"""Magnitude of a metric before any trial has measured one."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A trial ends before its last epoch.

    Attributes:
        trial: its name.
        epoch: epochs that it has trained.
        scheduler: what stops it, e.g. `asha`.
    """

    trial: str
    epoch: int
    scheduler: str


class RecordedScheduler(TrialScheduler):
    """A scheduler of Ray Tune inside a search that may have been interrupted.

    A search that is continued hands out its recorded trials again, and each repeats its recorded evaluations. How the scheduler meets
    them depends on its kind:

    * ASHA and median stopping decide at once, by what they have seen so far. They are shown the whole record in its order before the
      first trial starts, and not asked again when a trial repeats it: a trial goes on as far as its log does.
    * Hyperband decides only when all trials of a bracket have reached a rung, so the order of their evaluations does not matter: it
      sees each repeated one as if new, and decides the same.
    * Of a population nothing is repeated; each trial goes on where it was.
    """

    def __init__(
        self,
        inner: Any,  # noqa: ANN401 - Ray has no types
        *,
        name: str,
        mode: Mode,
        seed: int,
        history: SearchHistory,
        on_stop: Callable[[Stop], None],
    ) -> None:
        """Show it the record, if it is of a kind that is shown one.

        Args:
            inner: the scheduler.
            name: its name in the settings.
            mode: whether its metric is to be as large or as small as possible.
            seed: of everything that it draws.
            history: what earlier drivers have recorded.
            on_stop: called when it stops a trial early.
        """
        super().__init__()
        self._inner = inner
        self._name = name
        self._worse = -1.0 if mode == "max" else 1.0
        self._worst = math.nan
        self._seed = seed
        self._on_stop = on_stop
        self._draws = _Draws(seed)
        self._deciding = False
        self._recorded = history.trials
        self._shown = not isinstance(inner, HyperBandScheduler | PopulationBasedTraining)
        self._stops_at: dict[str, int] = {}
        if self._shown:
            self._show(history)

    @property
    def metric(self) -> str | None:
        """The metric that it compares."""
        metric: str | None = self._inner.metric
        return metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether several results may be delivered at once."""
        supports: bool = self._inner.supports_buffered_results
        return supports

    def __reduce__(self) -> tuple[Any, ...]:
        return FIFOScheduler, ()  # in Ray Tune's own snapshot, which we do not use

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: object) -> bool:
        """Ray offers the metric of the search; the scheduler has it from the settings."""
        del metric, mode, spec
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:  # noqa: ANN401
        """Ray has a new trial."""
        if not self._is_shown(trial):
            self._add(tune_controller, self._known_as(trial))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:  # noqa: ANN401
        """What a trial does after an evaluation."""
        name, epoch = trial.config[TRIAL], result[EPOCH]
        if self._is_shown(trial) and epoch <= self._recorded[name].epoch:
            return self._repeat(name, epoch)
        with self._decides():
            decision: str = self._inner.on_trial_result(tune_controller, self._known_as(trial), self._compared(result))
        if decision == _CONTINUE and self._was_stopped_at(name, epoch):
            return _STOP  # a bracket that has other trials than before
        if decision == _STOP:
            self._report(name, epoch)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:  # noqa: ANN401
        """A running trial has ended, or is stopped."""
        if FAILURE in result:
            self.on_trial_error(tune_controller, trial)
        elif not self._has_shown_end(trial):
            with self._decides():
                self._inner.on_trial_complete(tune_controller, self._known_as(trial), self._compared(result))

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:  # noqa: ANN401
        """A trial has failed."""
        if not self._has_shown_end(trial):
            with self._decides():
                self._inner.on_trial_error(tune_controller, self._known_as(trial))

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:  # noqa: ANN401
        """A trial that does not run is stopped: by the scheduler itself if it is deciding about another one."""
        if self._deciding:
            self._report(trial.config[TRIAL], trial.last_result[EPOCH])
        if not self._has_shown_end(trial):
            with self._decides():
                self._inner.on_trial_remove(tune_controller, self._known_as(trial))

    def choose_trial_to_run(self, tune_controller: Any) -> Any:  # noqa: ANN401
        """The trial that runs next."""
        with self._decides():
            return self._inner.choose_trial_to_run(tune_controller)

    def debug_string(self) -> str:
        """The state of the scheduler in a line."""
        text: str = self._inner.debug_string()
        return text

    def _show(self, history: SearchHistory) -> None:
        """Let the scheduler see the record, in its order."""
        for name in history.trials:
            self._add(None, _Named(name))
        for event in merge(*map(_events, history.trials.values()), key=attrgetter("time")):
            match event:
                case TrialReported():
                    with self._decides():
                        decision = self._inner.on_trial_result(
                            None, _Named(event.trial), self._compared(result_of(event))
                        )
                    trial = history.trials[event.trial]
                    # Otherwise the driver ended between an evaluation and the decision on it.
                    if decision == _STOP and trial.ended is None and event.epoch == trial.epoch:
                        self._stops_at[event.trial] = event.epoch
                case TrialEnded(status="failed"):
                    self._inner.on_trial_error(None, _Named(event.trial))
                case TrialEnded():
                    last = history.trials[event.trial].reports[-1:]
                    result = self._compared(result_of(last[0])) if last else {}
                    self._inner.on_trial_complete(None, _Named(event.trial), result)

    def _compared(self, result: dict[str, Any]) -> dict[str, Any]:
        """A result whose metric is a number: in place of NaN, one that is worse than every value so far.

        With NaN, ASHA and median stopping stop nobody, a bracket is in no order, and a population keeps the trial for ever.
        """
        value = result.get(self.metric or "")
        if value is None:
            return result
        if math.isnan(value):
            if math.isnan(self._worst) and self._shown:
                return result  # ASHA and median stopping leave it out of what they compare others with
            worst = self._worse * _WORSE_THAN_ANY if math.isnan(self._worst) else self._worst
            return {**result, str(self.metric): worst + self._worse * (1.0 + abs(worst))}
        if math.isnan(self._worst) or is_better(self._worst, value, higher_is_better=self._worse < 0):
            self._worst = value
        return result

    def _repeat(self, name: str, epoch: int) -> str:
        if self._was_stopped_at(name, epoch):
            return _STOP
        if self._stops_at.get(name) == epoch:
            self._report(name, epoch)
            return _STOP
        return _CONTINUE

    def _add(self, tune_controller: Any, trial: Any) -> None:  # noqa: ANN401
        # ASHA draws a trial's bracket: it must be the same whenever the trial is added.
        with (
            _Draws(zlib.crc32(f"{self._seed}/{trial.trial_id}".encode())).lent() if self._shown else self._draws.lent()
        ):
            self._inner.on_trial_add(tune_controller, trial)

    def _known_as(self, trial: Any) -> Any:  # noqa: ANN401
        """The trial as the scheduler knows it: one that is shown the record knows trials by name, as Ray's do not exist then."""
        return _Named(trial.config[TRIAL]) if self._shown else trial

    def _is_shown(self, trial: Any) -> bool:  # noqa: ANN401
        return self._shown and trial.config[TRIAL] in self._recorded

    def _has_shown_end(self, trial: Any) -> bool:  # noqa: ANN401
        return self._is_shown(trial) and self._recorded[trial.config[TRIAL]].ended is not None

    def _was_stopped_at(self, name: str, epoch: int) -> bool:
        trial = self._recorded.get(name)
        return trial is not None and trial.status == "stopped" and epoch >= trial.epoch

    def _report(self, name: str, epoch: int) -> None:
        trial = self._recorded.get(name)
        if trial is None or trial.ended is None:
            self._on_stop(Stop(trial=name, epoch=epoch, scheduler=self._name))

    @contextmanager
    def _decides(self) -> Iterator[None]:
        """While the scheduler decides, it draws from the search's seed. It may stop other trials, which calls us again."""
        if self._deciding:
            yield
            return
        self._deciding = True
        try:
            with self._draws.lent():
                yield
        finally:
            self._deciding = False


@dataclass(frozen=True)
class _Named:
    """Stands for a trial of Ray Tune. ASHA and median stopping use no more of one than this."""

    trial_id: str


class _Draws:
    """Random numbers for code that draws from the global generators of Python and NumPy."""

    def __init__(self, seed: int) -> None:
        self._python: Any = random.Random(seed).getstate()  # noqa: S311 - not for cryptography
        self._numpy: Any = np.random.RandomState(seed).get_state()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Give the global generators our state, and afterwards their own."""
        python, numpy = random.getstate(), np.random.get_state()
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        try:
            yield
        finally:
            self._python, self._numpy = random.getstate(), np.random.get_state()
            random.setstate(python)
            np.random.set_state(numpy)


def _events(trial: TrialHistory) -> Iterator[Event]:
    """Those of a trial in their order; a decision is older by some microseconds than the evaluation that it follows in the log."""
    yield from _reports(trial)
    if trial.ended is not None:
        yield trial.ended


def _reports(trial: TrialHistory) -> list[TrialReported]:
    """The evaluations that a scheduler was asked about: not the last of a trial that has trained to its end."""
    return trial.reports[:-1] if trial.status == "done" else trial.reports
