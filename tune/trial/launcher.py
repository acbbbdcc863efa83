"""Launches attempts of trials on ranks that wait for them; `training.attempts` does the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from training.launch.task import Outcome, RankTask, WorkersFailedError, unheard
from tune.trial.ranks import RankGroup

_PEERS_SECONDS = 5.0
"""How long the peers of a rank that failed may take to notice, before their processes are replaced: a step may have to end first."""


class GroupLauncher:
    """Runs attempts on a `RankGroup`, which outlives them. `allow` is for another thread."""

    def __init__(self, ranks: RankGroup) -> None:
        self._ranks = ranks
        self._until_epoch = 0

    def launch(
        self, task: RankTask, *, on_phase: Callable[[str], None], notify: Callable[[str], None] = unheard
    ) -> Outcome:
        """Run the attempt to its end.

        Raises:
            WorkersFailedError: a rank failed or died, or could not be started.
        """
        del notify  # a trial keeps its workers
        on_phase("workers_start")
        try:
            self._ranks.start()
            pending = self._ranks.run(task, until_epoch=self._until_epoch)
        except RayError as error:
            self._ranks.kill()
            raise WorkersFailedError(f"the ranks could not be started: {error}") from error
        rank_of = {outcome: rank for rank, outcome in enumerate(pending)}
        outcomes: dict[int, Outcome] = {}
        while pending:
            ready, pending = ray.wait(pending)
            for one in ready:
                try:
                    outcomes[rank_of[one]] = Outcome(**ray.get(one))
                except RayError as error:
                    raise self._failed(error, rank_of) from error
        return outcomes[0]

    def _failed(self, error: RayError, rank_of: Mapping[ray.ObjectRef[dict[str, Any]], int]) -> WorkersFailedError:
        """The end of an attempt, of which a rank has failed. Its peers usually lose their connection to it and end too."""
        ended, _ = ray.wait(list(rank_of), num_returns=len(rank_of), timeout=_PEERS_SECONDS)
        died = {rank_of[one]: None for one in ended if _has_died(one)}
        self._ranks.keep_usable([rank_of[one] for one in ended])
        return WorkersFailedError(str(error), exits=died)

    def allow(self, until_epoch: int) -> None:
        """Let the current or next attempt train up to and including an epoch."""
        self._until_epoch = until_epoch
        self._ranks.allow(until_epoch)

    def close(self) -> None:
        """Stop the ranks' processes."""
        self._ranks.kill()


def _has_died(outcome: ray.ObjectRef[dict[str, Any]]) -> bool:
    """Whether the process of a rank died in an attempt that has ended."""
    try:
        ray.get(outcome)
    except RayError as error:
        return isinstance(error, RayActorError)
    return False
