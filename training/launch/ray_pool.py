"""The Ray workers of a run: whom it trains on, whom it waits for, and whom it leaves.

A run of a fixed number of workers starts as one group, so that two runs on one cluster cannot each hold half of what the other needs.
The workers of an elastic run, and those that replace workers on drained nodes, are groups of one: each is placed where there is room, and
its resources are free again once it has ended. The decisions are `training.launch.scaling` and `training.launch.drain`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ray

from observability.quantities import duration
from observability.runlog import CheckpointCommitted, read_all, select
from training.config.resize import division_of, resized
from training.config.schema import TrainingSettings
from training.launch.agent.coordinator import Coordinator
from training.launch.drain import DrainNotice, leaves_at
from training.launch.ray_drain import draining_nodes, room_for
from training.launch.ray_group import RayGroup
from training.launch.ray_trainer import needs_of_worker
from training.launch.scaling import Sizes, Supply, can_grow, can_leave, can_start, workers_to_start
from training.launch.task import Outcome, RankTask, WorkersFailedError
from training.rundir import RunDirectory

_LOOPBACK = "127.0.0.1"

_LOOK_SECONDS = 0.5
"""Interval of the questions to Ray's metadata service."""

_RETRY_SECONDS = 30.0
"""After a worker that did not start, until an elastic run asks for another one while it trains."""

_SAY_AFTER_SECONDS = 5.0
"""A wait for workers that is longer is announced."""


@dataclass(kw_only=True)
class _Attempt:
    """What is known of the attempt that runs.

    Attributes:
        workers: names of its workers, by rank.
        sizes: numbers of workers that the run may have.
        reason: why its ranks were asked to make way for another attempt; empty if they were not.
    """

    workers: Sequence[str]
    sizes: Sizes
    reason: str = ""


class RayPool:
    """The workers of one run."""

    def __init__(self, task: RankTask, *, is_local: bool) -> None:
        """Prepare; the first `run` starts the workers.

        Args:
            task: the first attempt, with the settings of the run as it began.
            is_local: the cluster is on this machine.
        """
        self._settings = task.settings
        self._sizes = Sizes.of(task.settings)
        self._folder = task.run_directory / "ray"  # for Ray Train's own files, which all nodes share
        self._is_local = is_local
        self._coordinator = Coordinator(host=_LOOPBACK if is_local else str(ray.util.get_node_ip_address()))
        self._groups: list[RayGroup] = []
        self._going: dict[str, float] = {}
        self._next_look = 0.0
        self._next_start = 0.0
        self._workers: Sequence[str] = ()

    def fits(self, task: RankTask) -> bool:
        """Whether the workers are what an attempt needs, which may be of another run."""
        return _needs(self._settings) == _needs(task.settings)

    @property
    def has_lost(self) -> bool:
        """Whether a worker of the newest attempt is gone."""
        return not self._coordinator.agents.keys() >= set(self._workers)

    def run(self, task: RankTask, *, notify: Callable[[str], None]) -> Outcome:
        """Run an attempt on the workers that the run can have.

        Args:
            task: the attempt, with the settings of the run as it began.
            notify: called with what the user should know of the workers, a line each.

        Returns:
            The outcome; `moving` if another attempt should continue on other workers. `stopped` at step 0 if the run was asked to stop
            before it had workers.

        Raises:
            WorkersFailedError: a rank failed or died, or too few workers started.
        """
        if task.settings != self._settings:
            self._settings, self._sizes, self._workers = task.settings, Sizes.of(task.settings), ()
        attempt = self._gather(task, notify)
        if attempt is None:
            return Outcome(status="stopped", step=0)
        world = len(attempt.workers)
        settings, change = resized(self._settings, world)
        if world != (len(self._workers) or self._settings.scale.workers):
            notify(change or f"{division_of(settings).text}, as the settings say")
        self._workers = attempt.workers
        try:
            outcome = self._coordinator.run(
                replace(task, settings=settings), attempt.workers, check=lambda: self._watch(attempt, task)
            )
        except WorkersFailedError as error:
            error.world = world
            raise
        self._dismiss_leaving()
        if outcome.status != "stopped" or not attempt.reason:
            return outcome
        return replace(outcome, status="moving", reason=attempt.reason)

    def stop(self) -> None:
        """End the ranks and the workers."""
        self._coordinator.release()
        for group in self._groups:
            group.join()

    def _gather(self, task: RankTask, notify: Callable[[str], None]) -> _Attempt | None:
        """Wait for enough workers, and ask for those that are missing; None if the run is asked to stop meanwhile.

        Raises:
            WorkersFailedError: too few of them have started in time.
        """
        began = time.monotonic()
        patience = 2 * self._settings.scale.start_timeout  # Ray's own timeout, of the start of the workers, comes first
        is_first = not self._workers
        is_announced = is_first  # the phase of the start says so
        run = RunDirectory(task.run_directory)
        while not run.stop_is_requested():
            sizes = self._sizes.limited(run.requested_workers())
            self._look_at_nodes()
            self._drop_ended(raises=True)
            self._start(workers_to_start(sizes, self._supply()), is_first=is_first)
            supply = self._supply()
            size = can_start(sizes, supply, waits_for_all=is_first)
            if size is not None:
                return _Attempt(workers=self._staying()[:size], sizes=sizes)
            waited = time.monotonic() - began
            if waited > patience:
                raise WorkersFailedError(self._missing(sizes, supply, patience))
            if waited > _SAY_AFTER_SECONDS and not is_announced:
                is_announced = True
                notify(
                    f"waiting for workers: {supply.staying} of at least {sizes.least} ready; for {duration(patience)} before the start "
                    "has failed"
                )
            self._wait_for_news()
        return None

    def _wait_for_news(self) -> None:
        """Wait until an agent comes or goes, or it is time to look again."""
        before, end = list(self._coordinator.agents), time.monotonic() + _LOOK_SECONDS

        def check() -> None:
            if time.monotonic() > end:
                raise TimeoutError

        try:
            self._coordinator.wait(lambda: list(self._coordinator.agents) != before, check=check)
        except TimeoutError:
            return

    def _missing(self, sizes: Sizes, supply: Supply, patience: float) -> str:
        host, port = self._coordinator.address
        return (
            f"{sizes.least - supply.staying} of {sizes.least} workers have not connected to the driver at {host}:{port} within "
            f"{patience:g} s: no node has room for them, or a firewall or network policy is in the way"
        )

    def _watch(self, attempt: _Attempt, task: RankTask) -> None:
        """Ask the ranks to commit and stop where another attempt should continue; called often."""
        now = time.time()
        if attempt.reason or now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        attempt.sizes = self._sizes.limited(RunDirectory(task.run_directory).requested_workers())
        self._look_at_nodes()
        if self._drop_ended(raises=False):
            self._next_start = now + _RETRY_SECONDS
        supply = self._supply()
        if now >= self._next_start:
            self._start(workers_to_start(attempt.sizes, supply), is_first=False)
            supply = self._supply()
        attempt.reason = self._reason(attempt, supply, task, now)
        if attempt.reason:
            self._coordinator.ask_to_stop()

    def _reason(self, attempt: _Attempt, supply: Supply, task: RankTask, now: float) -> str:
        """Why the attempt should make way for another one; empty if it should not."""
        world = len(attempt.workers)
        leaving = tuple(rank for rank, worker in enumerate(attempt.workers) if self._is_leaving(worker))
        if leaving:
            notice = DrainNotice(
                ranks=leaving,
                deadline=min(self._going[self._coordinator.agents[attempt.workers[rank]].node] for rank in leaving),
                has_replacements=can_leave(attempt.sizes, supply, world=world),
            )
            is_time = now >= leaves_at(notice, now=now, save_seconds=_slowest_save(task.run_directory))
            return notice.describe(now) if is_time else ""
        if attempt.sizes.most < world:
            return f"the run was asked to continue with {attempt.sizes.most} of {world} workers"
        if can_grow(attempt.sizes, supply, world=world):
            return f"there are {attempt.sizes.within(supply.staying)} workers instead of {world}"
        return ""

    def _look_at_nodes(self) -> None:
        """Learn which nodes are about to go; a local one is not."""
        if not self._is_local:
            self._going = draining_nodes()

    def _dismiss_leaving(self) -> None:
        """Let the workers end whose nodes are about to go."""
        for worker in filter(self._is_leaving, list(self._coordinator.agents)):
            for group in self._groups:
                group.dismiss(worker)

    def _supply(self) -> Supply:
        starting = sum(group.starting for group in self._groups)
        # What those that are starting take may still look free.
        is_elastic = self._settings.scale.is_elastic
        room = (
            room_for(needs_of_worker(self._settings.scale), without=self._going) if is_elastic and not starting else 0
        )
        return Supply(staying=len(self._staying()), starting=starting, room=room)

    def _staying(self) -> list[str]:
        """The workers that are ready and stay, those that came first at the beginning."""
        of_groups = {worker for group in self._groups if group.is_alive for worker in group.agents}
        return [worker for worker in self._coordinator.agents if worker in of_groups and not self._is_leaving(worker)]

    def _is_leaving(self, worker: str) -> bool:
        agent = self._coordinator.agents.get(worker)
        return agent is not None and agent.node in self._going

    def _start(self, workers: int, *, is_first: bool) -> None:
        """Ask for workers: as one group at the beginning of a run that needs all of them, otherwise one by one."""
        is_group = (is_first or self._is_local) and not self._settings.scale.is_elastic
        for size in [workers] if is_group and workers else [1] * workers:
            self._groups.append(
                RayGroup(
                    self._settings,
                    self._coordinator,
                    workers=size,
                    folder=self._folder,
                    is_local=self._is_local,
                    replaces_lost=is_group and not self._is_local,
                )
            )

    def _drop_ended(self, *, raises: bool) -> bool:
        """Forget groups that have ended; returns whether one of them did not even start.

        Raises:
            WorkersFailedError: one did not start, and the caller wants to know why.
        """
        ended = [group for group in self._groups if not group.is_alive]
        self._groups = [group for group in self._groups if group not in ended]
        failures = [failure for group in ended if (failure := group.failure_of_start()) is not None]
        if failures and raises and not self._is_enough():
            raise failures[0]
        return bool(failures)

    def _is_enough(self) -> bool:
        """Whether an elastic run can do without the workers that did not start."""
        scale = self._settings.scale
        return scale.is_elastic and len(self._staying()) >= (scale.min_workers or 1)


def _needs(settings: TrainingSettings) -> tuple[object, ...]:
    """What the workers are started with."""
    scale = settings.scale
    needs = (scale.cpus_per_worker, scale.gpu, dict(scale.environment), settings.compute.allocator)
    return scale.min_workers, scale.workers, *needs


def _slowest_save(run_directory: Path) -> float:
    """Seconds until the slowest checkpoint so far was committed."""
    commits = select(read_all(run_directory), CheckpointCommitted)
    return max((one.stall_seconds + one.write_seconds for one in commits), default=0.0)
