"""The folder of a run: its layout and name, how runs are found, and the driver's lock.

    .local/runs/simple_cnn-digits-20261121-104233/
        settings.yaml   the settings the run was started with; `resume` reads them
        code.json       with code of one's own: which of the archives in code/ the run uses (training.code.kept)
        events.jsonl    what happened, in order (observability.runlog)
        checkpoints/    committed states, one folder a step
        data/           files of the dataset that inference needs, e.g. a tokenizer's vocabulary
        logs/           JSON lines, one file a rank
        model/          final weights and the files of data/, written when the run is done
        ledger/         sample ids of each step, if loop.log_sample_ids is set
        failures/       the exceptions of failed ranks, each rank's step and last stack, in which collective a rank waited, and
                        Ray's state (training.failures, training.evidence, training.flight_records, training.launch.ray_state)
        profile/        traces of profiled steps, and what they say (observability.profiling.window)
        report.html     plots and facts
        postmortem.html why the run ended, by `make postmortem`
        tracking.json   the MLflow run and its upload position
        stop            present: a request to stop at the next committed step
        driver.pid      process id of the driver, locked by it while it lives

Nothing heavy is imported here.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from infra.spec.section import did_you_mean, validate
from observability import runlog
from training.checkpoint.manifest import MANIFEST_FILE, TENSOR_SUFFIX
from training.checkpoint.store import committed_steps
from training.code import kept
from training.config.load import load_settings, render
from training.config.resize import check_size
from training.config.schema import RunSettings, TrainingSettings
from training.driver_lock import DriverLock
from training.environment import run_arguments
from training.errors import PreflightError, SettingsError
from training.profiling.request import RequestFile

DATA_FOLDER: Final = "data"
"""In the folder of a run: what it keeps of its dataset."""

RUN_DIRECTORY: Final = "RTP_RUN_DIRECTORY"
"""Environment variable of the default folder of the runs."""

_LONGEST_NAME = 63
_TAKE_OVER_SECONDS = 300.0
"""Seconds that a driver may take to save and stop: a large checkpoint on slow storage."""


@dataclass(frozen=True)
class RunDirectory:
    """A run's folder.

    Attributes:
        path: the folder; its last part is the run's name.
    """

    path: Path

    @classmethod
    def create(cls, settings: TrainingSettings, *, now: datetime) -> RunDirectory:
        """Make the folder of a new run, named after model, dataset and time unless the settings name it.

        If a run of the given name exists, its folder is returned unchanged.

        Raises:
            PreflightError: the folder cannot be made.
        """
        root = settings.run.directory
        try:
            if settings.run.name is not None:
                run = cls(root / settings.run.name)
                run.path.mkdir(parents=True, exist_ok=True)
            else:
                run = cls(_make_unique(root, _name(settings, now)))
            for folder in (run.checkpoints, run.logs):
                folder.mkdir(exist_ok=True)
            if not run.settings_file.exists():
                run.write_settings(settings)
        except OSError as error:
            raise PreflightError(
                f"cannot create the run's folder under run.directory={root}: {error.strerror}",
                remedy="choose another with --set run.directory=FOLDER",
            ) from error
        return run

    @classmethod
    def open(cls, run: str | Path, *, root: Path) -> RunDirectory:
        """The folder of an existing run, by its name under `root` or by path. With a slash it is a path first.

        Raises:
            SettingsError: the run does not exist; names the nearest one.
        """
        under_root, path = root / run, Path(run)
        for found in (path, under_root) if os.sep in str(run) else (under_root, path):
            if (found / "settings.yaml").is_file():
                is_named = found.name not in {"", ".."} and not found.is_symlink()
                return cls(found if is_named else found.resolve())
        names = [known.name for known in runs(root)]
        raise SettingsError(
            f"run {run}: no such run under {root}",
            remedy=did_you_mean(str(run), names) or f"newest first: {', '.join(names[:5]) or 'no runs yet'}",
        )

    @classmethod
    def newest(cls, root: Path) -> RunDirectory:
        """The most recently active run under `root`.

        Raises:
            SettingsError: there is none.
        """
        for run in runs(root):
            return run
        raise SettingsError(f"no runs under {root}", remedy="start one: make train")

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def argument(self) -> str:
        """What names the run on the command line: its name under the default folder of the runs, its path elsewhere."""
        return (
            self.name if self.path.parent.resolve() == default_root().resolve() else f"{self.path.parent}/{self.name}"
        )

    def command(self, name: str) -> str:
        """A command on the run, as its user types it: `make resume NAME=digits`, or with the arguments of the job that it runs in."""
        return f"make {name} {run_arguments() or f'NAME={self.argument}'}"

    @property
    def settings_file(self) -> Path:
        """The settings the run was started with, as YAML."""
        return self.path / "settings.yaml"

    @property
    def events(self) -> Path:
        """The run's log."""
        return self.path / runlog.FILE_NAME

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        """Folder of the ranks' logs."""
        return self.path / "logs"

    @property
    def model(self) -> Path:
        """Folder of the final weights."""
        return self.path / "model"

    @property
    def ledger(self) -> Path:
        """Folder of the sample ids."""
        return self.path / "ledger"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def tracking(self) -> Path:
        """The MLflow run, and how much of the log it has."""
        return self.path / "tracking.json"

    @property
    def stop_request(self) -> Path:
        """Present while a stop is requested."""
        return self.path / "stop"

    @property
    def resize_request(self) -> Path:
        """Present while an elastic run is asked for fewer workers than it may have: it has their number."""
        return self.path / "workers"

    def settings(self, changes: Sequence[str] = ()) -> TrainingSettings:
        """The settings the run was started with, for the run in this folder: it may have been moved or copied since.

        Args:
            changes: single settings, each `section.key=value`.

        Raises:
            SettingsError: a setting is invalid, a change names another run, or no run can have this folder's name.
        """
        for change in changes:
            if change.startswith(("run.name=", "run.directory=")):
                raise SettingsError(
                    f"--set {change}: the run in {self.path} is resumed in its folder, under the folder's name",
                    remedy=f"a new run with its settings: train --config {self.settings_file} --name NAME",
                )
        settings = load_settings([self.settings_file], overrides=changes, environment={})
        run = validate(
            RunSettings,
            {**settings.run.model_dump(), "name": self.name, "directory": self.path.parent},
            file=str(self.path),
            above="run",
            remedy="rename the folder",
        )
        return settings.model_copy(update={"run": run})

    def write_settings(self, settings: TrainingSettings) -> None:
        """Replace the run's settings, under its own name, by an atomic rename; the drivers of several nodes may do so at once."""
        named = settings.model_copy(update={"run": settings.run.model_copy(update={"name": self.name})})
        partial = self.settings_file.with_name(f".settings-{secrets.token_hex(4)}.yaml")
        partial.write_text(render(named), encoding="utf-8")
        partial.replace(self.settings_file)

    def refuse_lost_checkpoints(self) -> None:
        """Refuse a run whose log has committed checkpoints of which none is left: a start at step 0 would delete their tensors.

        A run that was killed while it wrote its first checkpoint has none in its log.

        Raises:
            PreflightError: names the checkpoints' folder and the tensors that are left.
        """
        if committed_steps(self.checkpoints):
            return
        events = runlog.read_all(self.path)
        steps = [
            event.step
            for event in events
            if isinstance(event, runlog.CheckpointCommitted)
            or (isinstance(event, runlog.Restored) and event.from_rank is None)
        ]
        if not steps:
            return
        left = sorted(self.checkpoints.glob(f"*/model*{TENSOR_SUFFIX}"))
        found = f"; left are {', '.join(str(path.relative_to(self.checkpoints)) for path in left)}" if left else ""
        unverified = f"; {left[-1]} has weights that safetensors can load, but nothing verifies them" if left else ""
        raise PreflightError(
            f"{self.checkpoints}: the run has committed step {max(steps)}, but no checkpoint has an intact "
            f"{MANIFEST_FILE}{found}",
            remedy=f"restore the folder from a backup, or start a new run with these settings: {self._repeat()}{unverified}",
        )

    def _repeat(self) -> str:
        """The command of a new run with the settings and the code of this one, among the other runs."""
        command = f"train --config {self.settings_file} --name NAME"
        if self.argument != self.name:
            command += f" --set run.directory={default_root()}"
        identity = kept.current_identity(self.path)
        return command if identity is None else f"{command} --code {self.path / kept.archive_name(identity)}"

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Hold the run's driver lock until the block or this process ends. Of a run on several machines the driver of node 0 holds it.

        Raises:
            PreflightError: another process drives the run.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(self._lock.held())
            except BlockingIOError:
                raise PreflightError(
                    f"run {self.name} is already driven by process {self.driver_pid()}",
                    remedy=f"wait for it, stop it ({self.command('stop')}), or give this run another --name",
                ) from None
            self.clear_requests()
            RequestFile(self.path).withdraw()
            yield

    @contextmanager
    def taken_over(self, *, patience: float = _TAKE_OVER_SECONDS) -> Iterator[None]:
        """Hold the run's driver lock as `driving` does, once a driver that still holds it has been asked to save and stop.

        Args:
            patience: seconds to wait for it.

        Raises:
            PreflightError: it did not stop.
        """
        deadline = time.monotonic() + patience
        while self.is_running() and time.monotonic() < deadline:
            self.stop_request.touch()
            time.sleep(0.05)
        with self.driving():
            yield

    def is_running(self) -> bool:
        """Whether a driver holds the run's lock."""
        return self._lock.is_held()

    def driver_pid(self) -> int | None:
        """Process id of the last driver, on the machine it ran on; None before the first one wrote it."""
        return self._lock.pid()

    @property
    def _lock(self) -> DriverLock:
        return DriverLock(self.path)

    def request_stop(self) -> None:
        """Ask the running driver to save a checkpoint and stop.

        Raises:
            PreflightError: no driver runs.
        """
        if not self.is_running():
            raise PreflightError(f"run {self.name} is not running", remedy="make jobs lists the runs and their states")
        self.stop_request.touch()

    def clear_requests(self) -> None:
        """Remove requests to an earlier driver: to stop, or to continue with other workers."""
        self.stop_request.unlink(missing_ok=True)
        self.resize_request.unlink(missing_ok=True)

    def stop_is_requested(self) -> bool:
        """Whether a stop was requested since the driver started."""
        return self.stop_request.exists()

    def request_workers(self, workers: int) -> None:
        """Ask the running driver of an elastic run to train on at most so many workers.

        Raises:
            PreflightError: no driver runs, or the run cannot have so many workers; names the nearest numbers that it can have.
        """
        if not self.is_running():
            raise PreflightError(
                f"run {self.name} is not running",
                remedy=f"make resume NAME={self.argument} SET=scale.workers={workers} resumes it with them",
            )
        check_size(self.settings(), workers)
        partial = self.resize_request.with_suffix(".partial")
        partial.write_text(f"{workers}\n", encoding="utf-8")
        partial.replace(self.resize_request)

    def requested_workers(self) -> int | None:
        """The most workers that a user has asked for since the driver started; None if nobody has."""
        try:
            return int(self.resize_request.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


def default_root() -> Path:
    """Folder of the runs, unless the command line names another."""
    return Path(os.environ.get(RUN_DIRECTORY) or RunSettings().directory)


def runs(root: Path) -> list[RunDirectory]:
    """The runs under a folder, the most recently active first."""
    found = [RunDirectory(path.parent) for path in root.glob("*/settings.yaml")]
    return sorted(found, key=_last_change, reverse=True)


def _last_change(run: RunDirectory) -> float:
    with suppress(FileNotFoundError):
        return run.events.stat().st_mtime
    return run.settings_file.stat().st_mtime


def _name(settings: TrainingSettings, now: datetime) -> str:
    """`<model>-<dataset>-<yyyymmdd-hhmmss>`, of the characters that a run's name may have."""
    what = f"{settings.model.name}-{settings.data.dataset}".lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", what).strip("._-") or "run"
    stamp = f"-{now:%Y%m%d-%H%M%S}"
    return slug[: _LONGEST_NAME - len(stamp) - len("-99")] + stamp


def _make_unique(root: Path, name: str) -> Path:
    """Create a new folder: two runs may start in the same second."""
    path = root / name
    number = 1
    while True:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            path = root / f"{name}-{number}"
        else:
            return path
