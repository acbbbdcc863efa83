"""Runs the trials of a search with Ray Tune until they have ended or the search is to end."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from training.code.kept import RunCode
from training.errors import TrainingFailedError
from training.launch.ray_cluster import RayCluster
from tune.events import SearchNotice, TrialAdded, TrialEnded, TrialExploited, TrialReported
from tune.folder import SearchFolder
from tune.history import TrialHistory
from tune.metrics import publishing
from tune.pruning import Pruning
from tune.record import SearchRecord
from tune.resources import Plan
from tune.schedulers.results import EPOCH, PARAMETERS, SECONDS, STEP, TRIAL, Cause
from tune.searchers.make import make_searcher
from tune.stopping import Ending, ending_of, ending_of_all, ending_of_failure
from tune.trial.clock import worker_seconds

if TYPE_CHECKING:
    from tune.driver import Search
    from tune.schedulers.population import Exploit
    from tune.schedulers.recorded import Stop

_PENDING = "TUNE_MAX_PENDING_TRIALS_PG"
_ENVIRONMENT = {
    # Ray Tune's own log files of each trial, and its handler of Ctrl-C.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    # The tracebacks of failed trials: the search shows the rank's message.
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    # Its snapshots, which we do not use: the search's log has more (docs/ARCHITECTURE.md).
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    # Set before Ray's threads run, and changed when the plan is known: see `RayCluster`.
    _PENDING: "auto",
}


class Engine:
    """One driver's part of a search."""

    def __init__(
        self,
        folder: SearchFolder,
        search: Search,
        record: SearchRecord,
        *,
        code: RunCode | None,
        is_continued: bool,
        stop_reason: Callable[[], str],
    ) -> None:
        """Prepare; nothing starts before `run`.

        Args:
            folder: of the search.
            search: what to do.
            record: of what happens.
            code: the user's own.
            is_continued: an earlier driver has begun the search.
            stop_reason: the signal that has asked the search to save and stop; empty until then.
        """
        self._folder = folder
        self._search = search
        self._settings = search.configuration.search
        self._record = record
        self._code = code
        self._is_continued = is_continued
        self._stop_reason = stop_reason
        self._searcher = make_searcher(self._settings, search.configuration.space, search.objectives)
        self._pruning = Pruning(folder, record.history, keep=self._settings.keep_checkpoints)
        self._hopeless: Ending | None = None
        self._unwritable = ""
        self._repeated = [name for name, trial in record.history.trials.items() if self._is_repeated(trial)]

    def run(self) -> Ending:
        """Search until all trials have ended, the search is to end, or somebody asks it to stop."""
        if ending := self._ending() or self._nothing_left():
            return ending
        scale = self._search.shared.scale
        plan = self._search.plan
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        cluster = RayCluster(
            address=scale.address,
            cpus=0 if plan is None else plan.cpus,
            gpus=0 if plan is None else plan.gpus,
            start_timeout=scale.start_timeout,
            scratch=self._folder.path.resolve().parent.parent / "ray",
        )
        try:
            cluster.start(imports="tune.trial.trainable")
            plan = plan or self._await_plan()
            if plan is None:
                return Ending(status="interrupted", reason=self._why_stop())
            with publishing(self._record, self._search.shared.metrics):
                return self._tune(plan, is_local=cluster.is_local)
        finally:
            cluster.close()
            self._pruning.prune()

    def _nothing_left(self) -> Ending | None:
        """The ending of a search that had come to its end before, such as one whose upload is repeated."""
        trials = self._record.history.trials
        is_over = len(trials) >= self._settings.trials and all(trial.ended for trial in trials.values())
        return ending_of_all(self._record.history) if is_over else None

    def _is_repeated(self, trial: TrialHistory) -> bool:
        """Whether a trial of an earlier driver is handed out again.

        Trials of a population that have ended are not. Of the others only Hyperband, whose brackets count it, sees a trial fail again.
        """
        if trial.status == "failed":
            return self._settings.scheduler.name == "hyperband"
        return trial.ended is None or not self._settings.is_population

    @property
    def _learns(self) -> bool:
        """Whether trials are suggested one by one, as late as possible. Brackets and populations need all of theirs at once."""
        return not (self._settings.is_population or self._settings.scheduler.name == "hyperband")

    def _await_plan(self) -> Plan | None:
        from tune.engine.nodes import await_plan  # noqa: PLC0415 - imports Ray, after its environment is set

        def say(message: str) -> None:
            self._record.add(SearchNotice(level="info", message=message))

        return await_plan(self._search.shared.scale, self._settings, is_stopped=lambda: bool(self._why_stop()), say=say)

    def _tune(self, plan: Plan, *, is_local: bool) -> Ending:
        from ray import tune  # noqa: PLC0415 - after the environment is set

        from tune.engine.ray_tune import Listener, Suggestions, plain_actors, quieten  # noqa: PLC0415
        from tune.schedulers.build import make_scheduler  # noqa: PLC0415
        from tune.schedulers.stopper import SearchStopper  # noqa: PLC0415
        from tune.trial.trainable import SearchTask, TrialActor  # noqa: PLC0415

        os.environ[_PENDING] = str(plan.concurrent if self._learns else self._settings.trials)
        [metric, mode], *_ = self._search.objectives.items()
        scheduler = make_scheduler(
            self._settings,
            self._search.configuration.space,
            epochs=self._search.shared.loop.epochs,
            metric=metric,
            mode="max" if mode == "max" else "min",
            history=self._record.history.copy(),
            on_stop=self._on_stop,
            on_exploit=self._on_exploit,
        )
        task = SearchTask(
            directory=self._folder.path.resolve(),
            configuration=self._search.configuration,
            objectives=self._search.objectives,
            code=self._code,
            is_local=is_local,
            is_continued=self._is_continued,
        )
        bundles = tune.PlacementGroupFactory(plan.bundles, strategy="PACK")
        stopper = SearchStopper(self._ending)
        quieten()
        with plain_actors():
            tune.Tuner(
                tune.with_resources(tune.with_parameters(TrialActor, task=task), bundles),
                tune_config=tune.TuneConfig(
                    metric=metric,
                    mode=mode,
                    search_alg=Suggestions(self._suggest),
                    scheduler=scheduler,
                    num_samples=self._settings.trials,
                    max_concurrent_trials=plan.concurrent if self._learns else None,
                    reuse_actors=True,
                ),
                run_config=tune.RunConfig(
                    name="tune",
                    storage_path=str(self._folder.path.resolve() / "ray"),
                    verbose=0,
                    callbacks=[Listener(on_result=self._on_result, on_failure=self._on_failure)],
                    stop=stopper,
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                ),
            ).fit()
        if self._unwritable:
            raise TrainingFailedError(self._unwritable)
        return stopper.ending or self._hopeless or ending_of_all(self._record.history)

    def _why_stop(self) -> str:
        """Why the search is to save and stop: a signal, or the file `stop`; empty while nobody has asked it to."""
        return self._stop_reason() or ("asked to stop" if self._folder.stop_request.exists() else "")

    def _ending(self) -> Ending | None:
        if reason := self._why_stop():
            return Ending(status="interrupted", reason=reason)
        if self._unwritable:
            return Ending(status="failed", reason=self._unwritable)
        return self._hopeless or ending_of(self._record.history, self._settings, self._search.shared.scale)

    def _suggest(self) -> dict[str, Any] | None:
        """The configuration of the next trial: those of earlier drivers first, then new ones."""
        trials = self._record.history.trials
        if self._repeated:
            name = self._repeated.pop(0)
            return _configuration(
                name, trials[name].values if self._settings.is_population else trials[name].first_values
            )
        if len(trials) >= self._settings.trials:
            return None
        values = self._searcher.suggest(list(trials.values()))
        if values is None:
            return None
        name = f"t{len(trials) + 1:03d}"
        self._record.add(TrialAdded(trial=name, values=values))
        return _configuration(name, values)

    def _on_result(self, result: Mapping[str, Any]) -> None:
        name = result[TRIAL]
        self._record.report(
            TrialReported(
                trial=name,
                epoch=result[EPOCH],
                step=result[STEP],
                metrics={
                    key: value for key, value in result.items() if key.startswith("validation_") or key == PARAMETERS
                },
                worker_seconds=result[SECONDS],
            )
        )
        if result["is_last"] and self._record.history.trials[name].ended is None:
            self._record.add(
                TrialEnded(
                    trial=name,
                    status="done",
                    worker_seconds=result[SECONDS],
                    weights_sha256=result["weights_sha256"],
                )
            )

        self._pruning.prune()

    def _on_stop(self, stop: Stop) -> None:
        trial = self._record.history.trials[stop.trial]
        ended = TrialEnded(
            trial=stop.trial,
            status="stopped",
            message=f"{stop.scheduler} after epoch {stop.epoch}",
            worker_seconds=trial.worker_seconds,
        )
        self._record.after_report(stop.trial, ended, epoch=stop.epoch)

    def _on_exploit(self, exploit: Exploit) -> None:
        from tune.trial.checkpoints import donated_weights  # noqa: PLC0415 - not without a population

        event = TrialExploited(
            trial=exploit.trial,
            donor=exploit.donor,
            epoch=exploit.epoch,
            step=exploit.step,
            weights_sha256=donated_weights(self._folder.trial(exploit.donor), step=exploit.step),
            values=exploit.values,
        )
        self._record.after_report(exploit.trial, event, epoch=math.inf)  # of the evaluation that Ray Tune deals with

    def _on_failure(self, name: str, message: str, *, cause: Cause) -> None:
        if cause == "folder":  # no fault of the trial, which goes on when the search is continued
            self._unwritable = self._unwritable or message
            return
        if cause == "objective":
            self._hopeless = self._hopeless or ending_of_failure(message, self._record.history)
        trial = self._record.history.trials[name]
        if trial.ended is None:
            seconds = worker_seconds(self._folder.trial(name), workers=self._search.shared.scale.workers)
            self._record.add(TrialEnded(trial=name, status="failed", message=message, worker_seconds=seconds))


def _configuration(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {TRIAL: name, **values}
