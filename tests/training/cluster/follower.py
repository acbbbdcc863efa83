"""A follower of a job."""

from __future__ import annotations

import io
import threading

from infra.kube.api import KubernetesApi
from tests.training.cluster.team_cluster import target
from tests.waiting import wait_until
from training.cluster.follow import follow
from training.cluster.node_room import room_by_group
from training.cluster.state import JobState
from training.cluster.view import JobView
from training.cluster.watch import JobWatch


class Follower:
    """Follows a job of the dev stack in a thread and records its output."""

    def __init__(self, api: KubernetesApi, *, namespace: str, name: str, patience: float = 30) -> None:
        """Start to follow; `patience` are the seconds to wait for each output."""
        self._stream = io.StringIO()
        self._patience = patience
        watch = JobWatch(api, namespace=namespace, name=name, rooms=room_by_group(target()))
        view = JobView(self._stream, is_terminal=False)
        self._ended: list[JobState] = []
        self._thread = threading.Thread(target=lambda: self._ended.append(follow(watch, None, view)), daemon=True)
        self._thread.start()

    @property
    def shown(self) -> str:
        return self._stream.getvalue()

    def sees(self, text: str) -> None:
        wait_until(lambda: text in self.shown or not self._thread.is_alive(), seconds=self._patience)
        assert text in self.shown, self.shown

    def end(self) -> JobState:
        self._thread.join(self._patience)
        assert self._ended, self.shown
        return self._ended[0]
