"""The agents of a worker group in threads of this process, with the ranks as real processes; without Ray."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from training.config.schema import TrainingSettings
from training.launch.agent.agent import Agent
from training.launch.agent.coordinator import Coordinator
from training.launch.agent.messages import Hello
from training.launch.task import Outcome, RankTask


class Group:
    """Agents, and the coordinator that they are connected to."""

    def __init__(self, agents: list[Agent], coordinator: Coordinator, threads: list[threading.Thread]) -> None:
        self._agents = agents
        self._threads = threads
        self.coordinator = coordinator

    @property
    def processes(self) -> list[int]:
        """The process of each rank; of one that has just died, the next."""
        found = [agent._rank.process.pid for agent in self._agents]
        return [pid for pid in found if pid is not None]

    @property
    def abandoning(self) -> set[int]:
        """Ranks whose agents were told that the attempt has failed, and wait for their end."""
        return {rank for rank, agent in enumerate(self._agents) if agent._deadline is not None}

    def run(
        self, settings: TrainingSettings, folder: Path, *, attempt: int = 0, check: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Run an attempt; `check` is called often.

        Raises:
            WorkersFailedError: a rank failed or died.
        """
        folder.mkdir(parents=True, exist_ok=True)
        task = RankTask(settings=settings, run_directory=folder, attempt=attempt)
        world = settings.scale.workers
        self.coordinator.wait(lambda: len(self.coordinator.agents) >= world, check=check)
        return self.coordinator.run(task, sorted(self.coordinator.agents)[:world], check=check)

    def end(self) -> None:
        """Let the agents end, and wait for them."""
        self.coordinator.release()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


@contextmanager
def agents(world: int, folder: Path) -> Iterator[Group]:
    """A group whose ranks keep their state in `folder`."""
    coordinator = Coordinator(host="127.0.0.1")
    hellos = [Hello(worker=f"worker-{rank}", host="127.0.0.1") for rank in range(world)]
    started = [Agent(hello, memory=folder / f"memory-{rank}") for rank, hello in enumerate(hellos)]
    with ExitStack() as stack:
        threads = [
            threading.Thread(target=one.serve, args=(coordinator.address, coordinator.key), daemon=True)
            for one in started
        ]
        for thread in threads:
            thread.start()
        group = Group(started, coordinator, threads)
        stack.callback(group.end)
        yield group


def eventually(condition: Callable[[], bool], *, seconds: float = 20.0) -> bool:
    """Whether a condition holds within some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
