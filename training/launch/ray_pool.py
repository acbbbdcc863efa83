"""The Ray workers of a run: whom it trains on, whom it waits for, and whom it leaves.

On a cluster, every worker is a group of its own: it is placed where there is room, its resources are free again once it has ended, and the
others stay when it is lost. A run of a fixed size reserves room for all of them first. On this machine the workers start as one group,
which is faster. The decisions are `training.launch.scaling` and `training.launch.drain`.
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
from training.launch.loop_gate import LoopGate
from training.launch.ray_drain import draining_nodes, room_for
from training.launch.ray_group import RayGroup
from training.launch.ray_reservation import Reservation
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

    def __init__(self, task: RankTask, *, is_local: bool, gate: LoopGate) -> None:
        """Prepare; the first `run` starts the workers.

        Args:
            task: the first attempt, with the settings of the run as it began.
            is_local: the cluster is on this machine.
            gate: ends the loops of the worker groups once it is closed.
        """
        self._settings = task.settings
        self._sizes = Sizes.of(task.settings)
        self._folder = task.run_directory / "ray"  # for Ray Train's own files, which all nodes share
        self._is_local = is_local
        self._gate = gate
        self._coordinator = Coordinator(host=_LOOPBACK if is_local else str(ray.util.get_node_ip_address()))
        self._groups: list[RayGroup] = []
        self._going: dict[str, float] = {}
        self._next_look = 0.0
        self._next_start = 0.0
        self._reservation: Reservation | None = None
        self._workers: Sequence[str] = ()

    def fits(self, task: RankTask) -> bool:
        """Whether the workers are what an attempt needs, which may be of another run."""
        return _needs(self._settings) == _needs(task.settings)

    @property
    def has_lost(self) -> bool:
        """Whether a worker of the newest attempt is gone, or the first attempt did not get its workers."""
        return not self._workers or not self._coordinator.agents.keys() >= set(self._workers)

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
        self._give_back()
        self._coordinator.release()
        for group in self._groups:
            group.join()

    def _gather(self, task: RankTask, notify: Callable[[str], None]) -> _Attempt | None:
        """Wait for enough workers, and ask for those that are missing; None if the run is asked to stop meanwhile.

        Raises:
            WorkersFailedError: too few of them have started in time.
        """
        began = time.monotonic()
        is_first = not self._workers
        is_announced = is_first  # the phase of the start says so
        run = RunDirectory(task.run_directory)
        while not run.stop_is_requested():
            sizes = self._sizes.limited(run.requested_workers())
            self._look_at_nodes()
            self._drop_ended(raises=True)
            self._start(workers_to_start(sizes, self._supply()), waits_for_all=is_first)
            supply = self._supply()
            size = can_start(sizes, supply, waits_for_all=is_first)
            if size is not None:
                return _Attempt(workers=self._staying()[:size], sizes=sizes)
            waited, patience = time.monotonic() - began, self._patience()
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

    def _patience(self) -> float:
        """Seconds until a start has failed: for room, and for the workers, whose own start has a timeout in Ray, which comes first."""
        timeout = self._settings.scale.start_timeout
        return timeout if self._reservation is not None else 2 * timeout

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
        now = time.monotonic()
        if attempt.reason or now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        attempt.sizes = self._sizes.limited(RunDirectory(task.run_directory).requested_workers())
        self._look_at_nodes()
        if self._drop_ended(raises=False):
            self._next_start = now + _RETRY_SECONDS
        supply = self._supply()
        if now >= self._next_start:
            self._start(workers_to_start(attempt.sizes, supply), waits_for_all=False)
            supply = self._supply()
        attempt.reason = self._reason(attempt, supply, task)
        if attempt.reason:
            self._coordinator.ask_to_stop()

    def _reason(self, attempt: _Attempt, supply: Supply, task: RankTask) -> str:
        """Why the attempt should make way for another one; empty if it should not."""
        world, now = len(attempt.workers), time.time()
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

    def _start(self, workers: int, *, waits_for_all: bool) -> None:
        """Ask for workers; those of a fixed run on a cluster, which waits for all of them, once there is room for all."""
        if not workers:
            return
        is_fixed = not self._settings.scale.is_elastic
        if waits_for_all and is_fixed and not self._is_local and not self._has_room(workers):
            return
        for size in [workers] if is_fixed and self._is_local else [1] * workers:
            self._groups.append(self._group_of(size))

    def _group_of(self, workers: int) -> RayGroup:
        return RayGroup(
            self._settings,
            self._coordinator,
            workers=workers,
            folder=self._folder,
            is_local=self._is_local,
            gate=self._gate,
        )

    def _has_room(self, workers: int) -> bool:
        """Reserve room for so many workers; whether it is there, and now free for them."""
        if self._reservation is None:
            self._reservation = Reservation(needs_of_worker(self._settings.scale), workers=workers)
        if not self._reservation.is_ready:
            return False
        self._give_back()
        return True

    def _give_back(self) -> None:
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None

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
