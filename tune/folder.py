"""The folder of a search: its layout, how searches are found, and the driver's lock.

    .local/searches/NAME/
        search.yaml     all settings, as given to the newest driver
        search.jsonl    what happened, in order (tune.events)
        trials/t003/    the run of a trial, like any other run (training.rundir)
        code/           the user's own code, if any (training.code.kept)
        best.yaml       the settings of the best trial, for a run at full length
        report.html     plots and facts
        stop            present: a request to save and stop
        driver.pid      process id of the driver, locked by it while it lives

Nothing heavy is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from infra.spec.section import did_you_mean
from training import unwritable
from training.driver_lock import DriverLock
from training.environment import run_arguments
from training.errors import PreflightError, SettingsError, TrainingFailedError
from training.rundir import RunDirectory
from tune.commands import BEST_FILE, make
from tune.events import FILE_NAME
from tune.settings import DEFAULT_ROOT


@dataclass(frozen=True)
class SearchFolder:
    """A search's folder; its last part is the search's name."""

    path: Path

    @classmethod
    def create(cls, root: Path, name: str | None, *, now: datetime) -> SearchFolder:
        """Make the folder of a search, named after the time unless it has a name; an existing one is returned unchanged.

        Raises:
            PreflightError: the folder cannot be made.
        """
        folder = cls(root / (name or f"search-{now:%Y%m%d-%H%M%S}"))
        try:
            folder.trials.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PreflightError(
                f"cannot create the search's folder {folder.path}: {error.strerror}",
                remedy="choose another with --set search.directory=FOLDER",
            ) from error
        return folder

    @classmethod
    def open(cls, name: str | Path | None, *, root: Path) -> SearchFolder:
        """The folder of an existing search, by its name under `root` or by path; without a name the newest.

        With a slash the name is a path first.

        Raises:
            SettingsError: the search does not exist; names the nearest one.
        """
        known = searches(root)
        if name is None:
            if not known:
                raise SettingsError(f"no searches under {root}", remedy="start one: make tune")
            return known[0]
        under_root, path = root / name, Path(name)
        for found in (path, under_root) if os.sep in str(name) else (under_root, path):
            if (found / FILE_NAME).is_file():
                return cls(found if found.name not in {"", ".."} else found.resolve())
        names = [search.name for search in known]
        nearest = did_you_mean(str(name), names) or f"newest first: {', '.join(names[:5]) or 'no searches yet'}"
        raise SettingsError(
            f"search {name}: no such search under {root}",
            remedy=f"{nearest}; if it is elsewhere, name its folder: NAME=FOLDER/{path.name}",
        )

    @property
    def name(self) -> str:
        """The search's name."""
        return self.path.name

    @property
    def argument(self) -> str:
        """What names the search on the command line: its name under the default folder of the searches, its path elsewhere."""
        is_default = self.path.parent.resolve() == DEFAULT_ROOT.resolve()
        return self.name if is_default else f"{self.path.parent}{os.sep}{self.name}"

    @property
    def command(self) -> str:
        """The command that continues the search, as its user types it: of a job, with the job's arguments."""
        of_job = run_arguments()
        return make("tune", NAME=self.argument) if of_job is None else f"make tune {of_job.replace(' JOB=', ' NAME=')}"

    def explain_unwritable(self, error: BaseException) -> TrainingFailedError | None:
        """What to say where the folder of the search, or of a trial in it, cannot be written; None of other errors."""
        then = f"{self.command} continues the search"
        return unwritable.explain(error, self.path, owner="search", then=then)

    @property
    def log(self) -> Path:
        """The search's log."""
        return self.path / FILE_NAME

    @property
    def settings_file(self) -> Path:
        """All settings."""
        return self.path / "search.yaml"

    @property
    def best_file(self) -> Path:
        """The settings of the best trial."""
        return self.path / BEST_FILE

    @property
    def trials(self) -> Path:
        """Folder of the trials' runs."""
        return self.path / "trials"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def stop_request(self) -> Path:
        """Present while a stop is requested; a pod of a cluster that is asked to end makes it (platform_charts.jobs.drain)."""
        return self.path / "stop"

    def trial(self, name: str) -> RunDirectory:
        """The run of a trial."""
        return RunDirectory(self.trials / name)

    def write(self, file: Path, text: str) -> None:
        """Replace a file of the folder by an atomic rename: on a full disk the old one stays.

        Raises:
            OSError: it cannot be written.
        """
        partial = file.with_name(f"{file.name}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Hold the driver's lock until the block or this process ends.

        Raises:
            PreflightError: another process drives the search.
        """
        lock = DriverLock(self.path)
        with ExitStack() as stack:
            try:
                stack.enter_context(lock.held())
            except BlockingIOError:
                raise PreflightError(
                    f"search {self.name} is already driven by process {lock.pid()}",
                    remedy=f"look at it ({make('tune-status', NAME=self.argument)}), wait for it, or give this search another NAME",
                ) from None
            self.stop_request.unlink(missing_ok=True)
            yield

    def is_running(self) -> bool:
        """Whether a driver holds the lock."""
        return DriverLock(self.path).is_held()


def searches(root: Path) -> list[SearchFolder]:
    """The searches under a folder, the most recently active first."""
    logs = sorted(root.glob(f"*/{FILE_NAME}"), key=lambda log: log.stat().st_mtime, reverse=True)
    return [SearchFolder(log.parent) for log in logs]
