"""The actor that Ray Tune drives: one for every trial that runs at the same time, with ranks that its trials share.

A Tune result is an evaluation. Tune's checkpoints are pointers to ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ray import tune
from ray.util import get_current_placement_group

from training import unwritable
from training.code.import_path import use_code
from training.code.kept import RunCode
from training.config.schema import TrainingSettings
from training.errors import PlatformError
from training.rundir import RunDirectory
from tune.config import SearchConfiguration
from tune.folder import SearchFolder
from tune.history import SearchHistory, TrialHistory
from tune.schedulers.results import EPOCH, PARAMETERS, SECONDS, STEP, TRIAL, Cause, failed_result, values_of
from tune.stopping import NotReportedError, check_result
from tune.trial import checkpoints
from tune.trial.checkpoints import Donation
from tune.trial.launcher import GroupLauncher
from tune.trial.ranks import RankGroup
from tune.trial.run import LOCAL_POLL_SECONDS, SHARED_POLL_SECONDS, Report, TrialRun, failure_text

_POINTER = "checkpoint.json"


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """What all trials of a search have in common, as their actors get it.

    Attributes:
        directory: absolute path of the search's folder, on storage that all nodes share.
        configuration: the search, and the settings of its trials.
        objectives: metrics to optimize with max or min.
        code: the user's own.
        is_local: all ranks run on this machine.
        is_continued: an earlier driver has begun the search.
    """

    directory: Path
    configuration: SearchConfiguration
    objectives: Mapping[str, str]
    code: RunCode | None
    is_local: bool
    is_continued: bool

    def settings(self, trial: str, values: Mapping[str, Any]) -> TrainingSettings:
        """The settings of a trial: its run is in the search's folder, Ray starts its ranks, and the port of metrics is the driver's."""
        settings = self.configuration.settings(values)
        run = settings.run.model_copy(
            update={
                "name": trial,
                "directory": trials_folder(self.directory),
                "dollars_per_hour": self._dollars_per_hour(settings),
            }
        )
        scale = settings.scale.model_copy(update={"launcher": "ray"})
        metrics = settings.metrics.model_copy(update={"port": 0})
        changed: dict[str, Any] = {"run": run, "scale": scale, "metrics": metrics}
        if self.is_population:
            changed["checkpoint"] = settings.checkpoint.model_copy(update={"after_evaluation": "every"})
        return settings.model_copy(update=changed)

    def _dollars_per_hour(self, settings: TrainingSettings) -> float | None:
        """Price of a trial: that of its workers, if the search knows it."""
        price = self.configuration.search.stop.dollars_per_worker_hour
        return settings.run.dollars_per_hour if price is None else price * settings.scale.workers

    @property
    def is_population(self) -> bool:
        """Whether trials continue from each other's checkpoints. They report nothing twice when the search is continued."""
        return self.configuration.search.is_population


def trials_folder(search: Path) -> Path:
    """Folder of the trials' runs."""
    return search / "trials"


class TrialActor(tune.Trainable):  # type: ignore[misc] # untyped
    """Trains one trial after the other."""

    def setup(self, config: dict[str, Any], *, task: SearchTask) -> None:
        """Prepare the ranks; they start with the first trial."""
        self._task = task
        if task.code is not None:
            use_code(task.code.folder)  # the settings name it
        group = get_current_placement_group()
        assert group is not None
        settings = task.settings(config[TRIAL], values_of(config))
        self._launcher = GroupLauncher(
            RankGroup(
                group,
                settings.scale,
                gpus_per_worker=task.configuration.search.gpus_per_worker,
                is_local=task.is_local,
            )
        )
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Leave the trial, which may continue elsewhere, and begin with another one, or with the same one and other values."""
        self._leave()
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._config = dict(config)
        self._trial: TrialRun | None = None
        self._inherits: Donation | None = None
        self._paused: Donation | None = None
        self._last: Report | None = None

    def _leave(self) -> None:
        if self._trial is not None:
            self._trial.stop()
            self._trial = None

    def step(self) -> dict[str, Any]:
        """Train to the next evaluation; the result of a trial that has failed says why."""
        try:
            return self._evaluated()
        except (PlatformError, OSError) as error:
            return self._failed(error)

    def _failed(self, error: PlatformError | OSError) -> dict[str, Any]:
        cause: Cause = "objective" if isinstance(error, NotReportedError) else "trial"
        if explained := _explain_unwritable(error, SearchFolder(self._task.directory)):
            error, cause = explained, "folder"
        if not isinstance(error, PlatformError):
            raise error
        return failed_result(self._config[TRIAL], failure_text(error), metrics=self._task.objectives, cause=cause)

    def _evaluated(self) -> dict[str, Any]:
        """The next evaluation.

        Raises:
            PlatformError: the trial failed.
        """
        if self._trial is None:
            self._trial = self._open()
        report = self._last = self._trial.advance()
        result = {
            TRIAL: self._config[TRIAL],
            EPOCH: report.epoch,
            STEP: report.step,
            **{f"validation_{name}": value for name, value in report.metrics.items()},
            SECONDS: report.worker_seconds,
            PARAMETERS: report.parameters,
            "weights_sha256": report.weights_sha256,
            "is_last": report.is_last,
            "done": report.is_last,
        }
        check_result(result, self._task.objectives)
        return result

    def _open(self) -> TrialRun:
        """The trial where it stands: new, continued, or from another one's checkpoint."""
        settings = self._task.settings(self._config[TRIAL], values_of(self._config))
        run = RunDirectory.create(settings, now=datetime.now().astimezone())
        run.write_settings(settings)
        checkpoints.complete(run)
        known = self._history()
        if known is not None and self._inherits is None and self._paused is None:
            self._inherits = checkpoints.lost_donation(run, known.exploits)
        epoch = known.epoch if known is not None else 0
        recorded: list[Report] = []
        failure = ""
        if self._inherits is not None:
            checkpoints.inherit(run, self._inherits)
            epoch = self._inherits.epoch
        elif self._paused is not None:
            epoch = self._paused.epoch
        elif known is not None and not self._task.is_population:
            epoch, recorded = 0, _recorded(known)
            failure = known.ended.message if known.ended is not None and known.ended.status == "failed" else ""
        return TrialRun(
            run,
            settings,
            launcher=self._launcher,
            code=self._task.code,
            recorded=recorded,
            failure=failure,
            epoch=epoch,
            poll_seconds=LOCAL_POLL_SECONDS if self._task.is_local else SHARED_POLL_SECONDS,
        )

    def _history(self) -> TrialHistory | None:
        """What is known of the trial from earlier drivers."""
        if not self._task.is_continued:
            return None
        return SearchHistory.read(self._task.directory).trials.get(self._config[TRIAL])

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Say where the trial stands; in a population, keep the checkpoint of its last evaluation for other trials."""
        if self._last is None:
            return
        run = RunDirectory(trials_folder(self._task.directory) / self._config[TRIAL])
        epoch, step = self._last.epoch, self._last.step
        if self._task.is_population:
            donation = checkpoints.donate(run, epoch=epoch, step=step)
        else:
            donation = Donation(trial=run.name, folder="", epoch=epoch, step=step, weights_sha256="")
        donation.write(Path(checkpoint_dir) / _POINTER)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Continue from the checkpoint of another trial, or where the same trial was paused."""
        pointer = Path(checkpoint) / _POINTER
        if not pointer.exists():
            return
        donation = Donation.read(pointer)
        if donation.trial == self._config[TRIAL]:
            self._paused = donation
        else:
            self._inherits = donation

    def cleanup(self) -> None:
        """Stop the trial and the ranks."""
        self._leave()
        self._launcher.close()


def _explain_unwritable(error: PlatformError | OSError, folder: SearchFolder) -> PlatformError | None:
    """What to say if a trial has failed because the folder cannot be written: a rank on a full disk may leave no record of it."""
    if explained := folder.explain_unwritable(error):
        return explained
    found = unwritable.probe(folder.path)
    return None if found is None else folder.explain_unwritable(found)


def _recorded(known: TrialHistory) -> list[Report]:
    """The evaluations of a trial as it reported them; the last one of a trial that has ended, but not failed, ends it again."""
    ended = known.ended if known.ended is not None and known.ended.status != "failed" else None
    return [
        Report(
            epoch=report.epoch,
            step=report.step,
            metrics={
                name.removeprefix("validation_"): value for name, value in report.metrics.items() if name != PARAMETERS
            },
            parameters=int(report.metrics.get(PARAMETERS, 0)),
            worker_seconds=report.worker_seconds,
            is_last=ended is not None and report is known.reports[-1],
            weights_sha256=ended.weights_sha256 if ended is not None and report is known.reports[-1] else "",
        )
        for report in known.reports
    ]
