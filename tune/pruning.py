"""Removes the checkpoints of trials that have lost: a search of large models would otherwise fill the disk."""

from __future__ import annotations

import shutil

from tune.folder import SearchFolder
from tune.history import SearchHistory, TrialHistory
from tune.trial.checkpoints import DONATED


class Pruning:
    """Keeps the checkpoints of the best trials, of those that have not ended, and of those that have failed, which can be resumed."""

    def __init__(self, folder: SearchFolder, history: SearchHistory, *, keep: int) -> None:
        """Args: `history` grows with the search; `keep` is the number of ended trials that keep their checkpoints."""
        self._folder = folder
        self._history = history
        self._keep = keep
        self._pruned: set[str] = set()

    def prune(self) -> None:
        """Remove what is not kept; a trial that still saves its last checkpoint is left for the next call."""
        kept = {trial.id for trial in self._history.ranked()[: self._keep]} | self._awaited_donors()
        for trial in self._history.trials.values():
            if trial.status in {"done", "stopped"} and trial.id not in kept | self._pruned:
                self._prune(trial)

    def _awaited_donors(self) -> set[str]:
        """The trials whose checkpoint another one has yet to copy: a clone may wait for its turn until after the donor's end."""
        return {
            trial.exploits[-1].donor
            for trial in self._history.trials.values()
            if trial.ended is None and trial.exploits and not trial.own_reports
        }

    def _prune(self, trial: TrialHistory) -> None:
        run = self._folder.trial(trial.id)
        if run.is_running():
            return
        for folder in (run.checkpoints, run.path / DONATED):
            for checkpoint in folder.glob("step-*"):
                shutil.rmtree(checkpoint, ignore_errors=True)
        self._pruned.add(trial.id)
