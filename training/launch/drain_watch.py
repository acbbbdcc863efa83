"""Watches the nodes of a worker group while an attempt runs, and lets its ranks leave those that are being drained."""

from __future__ import annotations

import time

from observability.runlog import CheckpointCommitted, read_all, select
from training.launch.agent.coordinator import Coordinator
from training.launch.drain import DrainNotice, leaves_at
from training.launch.ray_drain import draining_nodes, room_for
from training.launch.task import RankTask

_QUESTION_S = 0.5
"""Interval of the questions to Ray's metadata service."""


class DrainWatch:
    """Of one attempt.

    Attributes:
        reason: why the ranks were asked to leave; empty if they were not.
    """

    def __init__(self, coordinator: Coordinator, task: RankTask) -> None:
        self.reason = ""
        self._coordinator = coordinator
        self._task = task
        self._next_question = 0.0

    def look(self) -> None:
        """Ask the ranks to commit and stop, if it is time; to be called often."""
        now = time.time()
        if self.reason or now < self._next_question:
            return
        self._next_question = now + _QUESTION_S
        going = draining_nodes()
        leaving = {rank: going[node] for rank, node in self._coordinator.nodes.items() if node in going}
        if not leaving:
            return
        notice = DrainNotice(
            ranks=tuple(leaving),
            deadline=min(leaving.values()),
            has_room=self._has_room(going, leaving=len(leaving)),
        )
        if now >= leaves_at(notice, now=now, save_seconds=self._save_seconds()):
            self.reason = notice.describe(now)
            self._coordinator.ask_to_stop()

    def _has_room(self, going: dict[str, float], *, leaving: int) -> bool:
        """Whether those that leave fit on other nodes; the others go back to where they are."""
        scale = self._task.settings.scale
        need = {"CPU": float(scale.cpus_per_worker), **({"GPU": 1.0} if scale.gpu else {})}
        return room_for(need, without=going) >= leaving

    def _save_seconds(self) -> float:
        commits = select(read_all(self._task.run_directory), CheckpointCommitted)
        return max((one.stall_seconds + one.write_seconds for one in commits), default=0.0)
