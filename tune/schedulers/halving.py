"""Hyperband of Ray Tune, corrected for trials that are added one by one and for trials that fail."""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import HyperBandScheduler, hyperband

from tune.schedulers.results import EPOCH


class Hyperband(HyperBandScheduler):
    """The trials of a bracket wait for each other at its rungs; those that pass the last one train to their end.

    A trial's bracket follows from its place in the order of all trials, so a search that is continued has the same brackets. Ray fills
    a bracket up again when a trial of it ends, so that with few trials at a time all of them can end in the first bracket, which
    stops none; and it halves a bracket as soon as all trials that it has so far wait.

    Ray marks a bracket when it reaches its first rung, so that the trials it stops there do not process the bracket again, and never
    takes the mark away (`is_being_processed`). When a trial fails on its way to a later rung, the others would wait for it forever.
    """

    def __init__(self, *, metric: str, mode: str, epochs: int, reduction_factor: int) -> None:
        super().__init__(
            time_attr=EPOCH,
            metric=metric,
            mode=mode,
            max_t=epochs,
            reduction_factor=reduction_factor,
            # The last rung is not at the last epoch unless that is a power of the factor.
            stop_last_trials=False,
        )

    def choose_trial_to_run(self, tune_controller: Any) -> Any:  # noqa: ANN401 - Ray has no types
        """The trial that runs next. If all wait, no more will come, and the last bracket goes on with those it has."""
        bracket = self._state["bracket"]
        statuses = {trial.status for trial in tune_controller.get_trials()}
        if Trial.PAUSED in statuses and not statuses & {Trial.RUNNING, Trial.PENDING} and not bracket.filled():
            bracket.is_closed = True
            self._process_bracket(tune_controller, bracket)
        return super().choose_trial_to_run(tune_controller)

    def _create_bracket(self, s: int) -> _Bracket:
        return _Bracket(
            time_attr=self._time_attr,
            max_trials=self._get_n0(s),
            init_t_attr=self._get_r0(s),
            max_t_attr=self._max_t_attr,
            eta=self._eta,
            s=s,
            stop_last_trials=self._stop_last_trials,
        )

    def _process_bracket(self, tune_controller: Any, bracket: _Bracket) -> str:  # noqa: ANN401
        try:
            action: str = super()._process_bracket(tune_controller, bracket)
            return action
        finally:
            bracket.is_being_processed = False


class _Bracket(hyperband._Bracket):  # noqa: SLF001
    """A bracket that is full once it has had all its trials, and waits until then."""

    is_closed = False
    """No more trials will come."""

    def filled(self) -> bool:
        return self.is_closed or len(self._all_trials) == self._n0

    def cur_iter_done(self) -> bool:
        return self.filled() and bool(super().cur_iter_done())
