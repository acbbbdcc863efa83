"""From the configuration of a search to its result: the steps of `tune`, in order.

All checks run before a folder is created or a process is started. A search that was interrupted or killed is continued by the same command.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from infra.spec.output import outliving_the_reader
from infra.spec.signals import second_signal, stopping
from training import environment, preflight
from training.code import kept
from training.code.import_path import on_import_path
from training.code.kept import RunCode
from training.config.load import render
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, Interrupted, PlatformError
from training.rundir import default_root
from training.summary import delivered_text
from training.tracking.process import DeliveryReport, FollowerProcess
from tune.changes import refuse_changes
from tune.commands import train_command
from tune.config import SearchConfiguration, render_search
from tune.events import SearchEnded, SearchLogWriter, SearchNotice, SearchStarted
from tune.folder import SearchFolder
from tune.history import SearchHistory, TrialHistory
from tune.objectives import objectives_of
from tune.record import SearchRecord
from tune.resources import Plan, plan_trials
from tune.settings import Mode
from tune.view import SearchView

if TYPE_CHECKING:
    from training.code.archive import CodeArchive
    from tune.engine.engine import Engine
    from tune.stopping import Ending

_TICK_SECONDS = 0.2
_TRACKING_SECONDS = 120.0
"""Seconds the driver waits for the upload to MLflow."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search that has been checked.

    Attributes:
        configuration: what the command line and its files say.
        shared: the settings that trials share.
        objectives: metrics to optimize with max or min, the most important first.
        plan: what a trial reserves, and how many run at the same time; None on an existing cluster, whose nodes decide.
    """

    configuration: SearchConfiguration
    shared: TrainingSettings
    objectives: Mapping[str, Mode]
    plan: Plan | None


def check(configuration: SearchConfiguration) -> Search:
    """Refuse a search that cannot run here, before anything is started.

    Raises:
        PlatformError: the space, the scheduler or the settings are invalid, or this machine is too small.
    """
    configuration.check()
    shared, search = configuration.shared, configuration.search
    search.stop.check_price()
    machine = preflight.this_machine()
    plan = None
    if shared.scale.address is None:
        plan = plan_trials(shared.scale, search, machine, memory=preflight.available_memory())
    run = shared.run.model_copy(update={"directory": search.directory})
    preflight.check(shared.model_copy(update={"run": run}), machine, directory="search.directory")
    return Search(configuration=configuration, shared=shared, objectives=objectives_of(search, shared), plan=plan)


def drive(search: Search, code: CodeArchive | None) -> ExitStatus:
    """Search, or continue a search, and report. It continues without a reader of its output.

    Args:
        search: what to do.
        code: code of the user's own; None uses what the search has kept already, if anything.

    Raises:
        PlatformError: the search was refused, or failed.
    """
    with outliving_the_reader():
        root, name = search.configuration.search.directory, search.shared.run.name
        folder = SearchFolder.create(root, name, now=datetime.now().astimezone())
        with folder.driving():
            history = SearchHistory.read(folder.path)
            refuse_changes(history, search.configuration.search, search.shared)
            own = _kept(folder, code)
            # The settings of the best trial name it.
            with nullcontext() if own is None else on_import_path(own.folder):
                try:
                    return _Driver(folder, search, history).run(own)
                except Exception as error:
                    if explained := folder.explain_unwritable(error):
                        raise explained from error
                    raise


def _kept(folder: SearchFolder, code: CodeArchive | None) -> RunCode | None:
    """The code that all trials import, kept in the search's folder."""
    archive = code or kept.current(folder.path)
    return None if archive is None else kept.keep(folder.path, archive)


class _Driver:
    """Drives one search from one process."""

    def __init__(self, folder: SearchFolder, search: Search, history: SearchHistory) -> None:
        self._folder = folder
        self._search = search
        self._view = SearchView(
            sys.stdout, is_terminal=sys.stdout.isatty(), directory=folder.path, history=history.copy()
        )
        self._asked: signal.Signals | None = None
        self._history = history

    def run(self, code: RunCode | None) -> ExitStatus:
        """Search to the end, or until a signal."""
        from tune.engine.engine import Engine  # noqa: PLC0415 - imports Ray, after its environment is set

        is_continued = bool(self._history.started)
        text = render(self._search.shared) + render_search(self._search.configuration.search)
        self._folder.write(self._folder.settings_file, text)
        with closing(SearchLogWriter(self._folder.path)) as log:
            record = SearchRecord(log, self._history, show=self._view.handle)
            with self._ticking(record), stopping(self._ask_to_stop):
                record.add(self._start(code))
                tracking = self._search.shared.tracking.enabled
                follower = FollowerProcess(self._folder.path, module="tune.tracking.follow") if tracking else None
                engine = Engine(
                    self._folder,
                    self._search,
                    record,
                    code=code,
                    is_continued=is_continued,
                    stop_reason=self._stop_reason,
                )
                ending = self._run(engine, record)
                best = next(iter(record.history.ranked()), None)
                if best is not None:
                    self._write_best(best)
                record.add(SearchEnded(status=ending.status, reason=ending.reason, best=best.id if best else ""))
                problem = self._write_report()
        delivery = None if follower is None else self._deliver(follower)
        self._summarise(best, delivery, problem, is_interrupted=ending.status == "interrupted")
        return {"done": ExitStatus.DONE, "interrupted": ExitStatus.INTERRUPTED}.get(ending.status, ExitStatus.FAILED)

    def _start(self, code: RunCode | None) -> SearchStarted:
        return SearchStarted(
            search=self._folder.name,
            settings=self._search.configuration.search.model_dump(mode="json"),
            shared=self._search.shared.model_dump(mode="json"),
            objectives=dict(self._search.objectives),
            environment=environment.describe(None if code is None else code.describe()),
        )

    def _run(self, engine: Engine, record: SearchRecord) -> Ending:
        """Run the trials; records why if that does not come to its end.

        Raises:
            Interrupted: a second signal ended it before the trials had saved.
        """
        try:
            return engine.run()
        except KeyboardInterrupt:
            message = "stopped without saving the running trials"
            record.add(SearchEnded(status="interrupted", reason=message))
            remedy = f"{self._folder.command} continues them from their newest checkpoints"
            raise Interrupted(message, remedy=remedy) from None
        except Exception as error:
            explained = self._folder.explain_unwritable(error)
            said = explained or error
            reason = str(said.args[0]) if isinstance(said, PlatformError) else f"{type(error).__name__}: {error}"
            with suppress(OSError):  # the disk is full
                record.add(SearchEnded(status="failed", reason=reason))
            raise

    def _write_best(self, best: TrialHistory) -> None:
        """Write the settings of the best trial, for a run of its own."""
        settings = self._search.configuration.settings(best.values)
        run = settings.run.model_copy(update={"name": None, "directory": default_root()})
        text = render(settings.model_copy(update={"run": run}))
        self._folder.write(
            self._folder.best_file, f"# The best trial of search {self._folder.name}: {best.id}.\n{text}"
        )

    def _write_report(self) -> str:
        """Write the report; an error in it does not fail the search."""
        try:
            from tune.report import write_report  # noqa: PLC0415 - brings matplotlib

            write_report(self._folder.path)
        except Exception as error:  # noqa: BLE001 - the results are in the log
            return f"the report could not be written: {type(error).__name__}: {error}"
        return ""

    def _deliver(self, follower: FollowerProcess) -> DeliveryReport:
        print("sending the search to MLflow …", flush=True)
        return follower.finish(timeout=_TRACKING_SECONDS)

    def _summarise(
        self, best: TrialHistory | None, delivery: DeliveryReport | None, problem: str, *, is_interrupted: bool
    ) -> None:
        """Print where everything is and how to go on."""
        lines = []
        if is_interrupted:
            lines.append(("continue", self._folder.command))
        if best is not None:
            lines.append(("best", f"{best.id}, {self._folder.best_file}"))
            lines.append(("train it", train_command(self._history, self._folder.path)))
        lines.append(("report", problem or str(self._folder.report)))
        if delivery is not None and delivery.is_complete:
            lines.append(("MLflow", delivered_text(delivery)))
        elif delivery is not None:
            lines.append(("MLflow", f"incomplete, {self._folder.command} sends the rest: {delivery.problem}"))
        for name, text in lines:
            print(f"  {name:<11}{text}")

    @contextmanager
    def _ticking(self, record: SearchRecord) -> Iterator[None]:
        """Redraw the view in a thread, which also answers the first signal: the main thread may still wait for Ray's start."""
        is_over = threading.Event()

        def tick() -> None:
            is_answered = False
            while not is_over.wait(_TICK_SECONDS):
                if self._asked is not None and not is_answered:
                    is_answered = True
                    message = f"{self._asked.name}: saving the running trials and stopping{second_signal(self._asked)}"
                    record.add(SearchNotice(level="warning", message=message))
                self._view.tick()

        thread = threading.Thread(target=tick, name="table", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._view.close()

    def _ask_to_stop(self, number: signal.Signals) -> None:
        self._asked = number

    def _stop_reason(self) -> str:
        """Why the search is to save and stop; empty while nobody has asked it to."""
        return "" if self._asked is None else f"stopped by {self._asked.name}"
