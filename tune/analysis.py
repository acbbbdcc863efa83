"""Searches in Python: data frames, plots, and the models of the trials.

    from tune.analysis import open_search

    search = open_search("first")
    search.trials.head()
    search.plot("curves")
    model = search.load_model()

The search may still be running; open it again to see more of it. `search.ipynb` shows all of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from infra.spec.section import did_you_mean
from observability.report.drawing import Plot
from training.checkpoint.store import committed_steps, folder_name
from training.code import kept
from training.code.import_path import use_code
from training.config.load import load_settings
from training.config.schema import OptionValue, TrainingSettings
from training.data.registry import load_dataset
from training.errors import CheckpointError, SettingsError
from training.models.registry import build_model
from training.rundir import RunDirectory
from tune.commands import train_command
from tune.folder import SearchFolder
from tune.history import SearchHistory, TrialHistory
from tune.report.data import SearchData
from tune.report.importance import Importances, importances
from tune.report.plots import PLOTS, draw_plot
from tune.settings import DEFAULT_ROOT
from tune.texts import MetricTexts

if TYPE_CHECKING:
    from torch import nn

    from training.data.types import DataBundle


def open_search(search: str | Path | None = None, *, root: Path = DEFAULT_ROOT) -> SearchAnalysis:
    """A search as it is now.

    Args:
        search: its name, or its folder; None is the newest.
        root: folder of the searches.

    Raises:
        SettingsError: there is no such search; names the nearest one.
    """
    return SearchAnalysis(SearchFolder.open(search, root=root))


class SearchAnalysis:
    """A search that has started, as it was when it was opened."""

    def __init__(self, folder: SearchFolder) -> None:
        """Args: `folder` is that of the search."""
        self._folder = folder
        history = SearchHistory.read(folder.path)
        if not history.started:
            raise SettingsError(f"search {folder.path} has no start in its log", remedy="start it: make tune NAME=…")
        self._data = SearchData(history=history, texts=MetricTexts(folder.path), is_running=folder.is_running())

    @cached_property
    def _importances(self) -> Importances:
        return importances(self._data)

    def __repr__(self) -> str:
        return f"{self.name}: {self.status}, {len(self.trials)} trials, best {self.best or 'none yet'}"

    @property
    def name(self) -> str:
        """Name of the search."""
        return self._folder.name

    @property
    def folder(self) -> Path:
        """Its folder, with a folder in `trials` for each trial."""
        return self._folder.path

    @property
    def status(self) -> str:
        """`running`, `done`, `interrupted`, `failed`, or `killed` where it ended without a record."""
        return self._data.history.status(is_running=self._data.is_running)

    @property
    def objective(self) -> str:
        """The metric that ranks the trials: the first objective."""
        return self._data.objective[0]

    @property
    def best(self) -> str | None:
        """The best trial; None before the first result."""
        return None if self._data.best is None else self._data.best.id

    @property
    def trials(self) -> pd.DataFrame:
        """One row for each trial, by its name; the best first, those without a result last.

        Columns: `status`; `epochs`, how many it has trained; `best_epoch`, and the metrics of that evaluation, or with several objectives
        those of the newest one; `seconds` of all its workers; `dollars` if the settings have a price; a column for each axis of the space,
        missing where it does not apply; `message`, why it was stopped or failed.
        """
        rows = [self._row(trial) for trial in self._data.by_rank()]
        columns = dict.fromkeys(key for row in rows for key in row if key not in {*self._data.axes, "message"})
        return _frame(rows, ["trial", *columns, *self._data.axes, "message"]).set_index("trial")

    def _row(self, trial: TrialHistory) -> dict[str, object]:
        data = self._data
        is_single = len(data.objectives) == 1
        report = data.best_report(trial) if is_single else next(reversed(trial.reports), None)
        dollars = data.dollars(trial.worker_seconds)
        return {
            "trial": trial.id,
            "status": data.status(trial),
            "epochs": trial.epoch,
            **({} if report is None else {"best_epoch" if is_single else "epoch": report.epoch, **report.metrics}),
            "seconds": trial.worker_seconds,
            **({} if dollars is None else {"dollars": dollars}),
            **trial.values,
            "message": "" if trial.ended is None else trial.ended.message,
        }

    @property
    def evaluations(self) -> pd.DataFrame:
        """The learning curves: one row for each evaluation, in the order of trials and epochs.

        Columns: `trial`, `epoch`, `step`, the metrics, `seconds` of the trial's workers until then, and `time` (UTC). A member of a
        population keeps those until its last exploitation, and has made those after it with the weights that it copied.
        """
        rows = [
            {
                "trial": trial.id,
                "epoch": report.epoch,
                "step": report.step,
                **report.metrics,
                "seconds": report.worker_seconds,
                "time": pd.Timestamp(report.time, unit="s", tz="UTC"),
            }
            for trial in self._data.trials
            for report in trial.reports
        ]
        metrics = dict.fromkeys(key for row in rows for key in row)
        return _frame(rows, ["trial", "epoch", "step", *metrics])

    @property
    def exploits(self) -> pd.DataFrame:
        """The lineage of a population: one row for each time that a trial went on from another one's checkpoint, oldest first.

        Columns: `trial`, its `donor`, `epoch` and `step` of the checkpoint, its `weights_sha256`, and the trial's values from then on.
        """
        events = sorted((one for trial in self._data.trials for one in trial.exploits), key=lambda one: one.time)
        fixed = ["trial", "donor", "epoch", "step", "weights_sha256"]
        rows = [{**{key: getattr(one, key) for key in fixed}, **one.values} for one in events]
        return _frame(rows, [*fixed, *self._data.axes])

    def values(self, trial: str | None = None) -> Mapping[str, OptionValue]:
        """The values of a trial, by setting; None is the best one. Of a population those that it has now."""
        return self._find(trial).values

    def settings(self, trial: str | None = None) -> TrainingSettings:
        """All settings of a trial; None is the best one."""
        return load_settings([self._run(trial).settings_file])

    @property
    def train_command(self) -> str:
        """The command that trains the best values for all epochs; the search writes `best.yaml`, which it reads, when it ends."""
        self._find(None)
        return train_command(self._data.history, self._folder.path)

    def plot(self, key: str) -> Plot:
        """A plot of the report, which a notebook shows. One that does not apply to the search has a note that says so.

        Args:
            key: one of `tune.report.plots.PLOTS`, e.g. `best`, `curves`, `parallel`, `importance` or `cost`.

        Raises:
            SettingsError: there is no such plot.
        """
        if key not in PLOTS:
            raise SettingsError(
                f"plot {key}: no such plot", remedy=did_you_mean(key, [*PLOTS]) or f"plots: {', '.join(PLOTS)}"
            )
        return draw_plot(key, self._data, self._importances)

    @property
    def importance(self) -> Mapping[str, float]:
        """The share of each setting in what tells the best trials from the others, the largest first; empty if it cannot be told."""
        return self._importances.by_setting

    def load_model(self, trial: str | None = None) -> nn.Module:
        """The model of a trial on the CPU, in evaluation mode; None is the best one.

        It has the final weights, or those of the newest checkpoint of a trial that has not trained to its end.

        Raises:
            CheckpointError: there are neither.
        """
        from training import export  # noqa: PLC0415 - imports torch
        from training.checkpoint.weights import load_weights  # noqa: PLC0415 - as export

        run = self._run(trial)
        self._use_code()
        if run.model.is_dir():
            return export.load_exported(run.model)
        steps = committed_steps(run.checkpoints)
        if not steps:
            raise CheckpointError(
                f"trial {run.name} has no weights: it has not trained to its end, and its checkpoints were removed or not yet written",
                remedy="choose a trial that is done, or raise search.keep_checkpoints, the trials that keep theirs",
            )
        settings = self.settings(run.name)
        module = build_model(settings.model, load_dataset(settings.data).spec)
        load_weights(run.checkpoints / folder_name(steps[-1]), module)
        return module.eval()

    def load_dataset(self, trial: str | None = None) -> DataBundle:
        """The dataset of a trial; None is the best one."""
        self._use_code()
        return load_dataset(self.settings(trial).data)

    def _use_code(self) -> None:
        """Import from the search's copy of the user's own code, if it has some."""
        folder = kept.current_folder(self._folder.path)
        if folder is not None:
            use_code(folder)

    def _run(self, trial: str | None) -> RunDirectory:
        return self._folder.trial(self._find(trial).id)

    def _find(self, trial: str | None) -> TrialHistory:
        if trial is None:
            if self._data.best is None:
                raise SettingsError(
                    f"search {self.name} has no result yet", remedy="open it again later, or name a trial"
                )
            return self._data.best
        known = self._data.history.trials
        if trial not in known:
            raise SettingsError(
                f"trial {trial}: no such trial in search {self.name}",
                remedy=did_you_mean(trial, [*known]) or f"it has {len(known)} trials, from t001",
            )
        return known[trial]


def _frame(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(dict.fromkeys(columns)))
