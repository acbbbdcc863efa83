"""The ranks of a worker group as Ray actors, which outlive a trial: the next one finds torch imported and the GPU open."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from training.config.schema import ScaleSettings
from training.evidence import stack_on_death
from training.launch.pod_lock import holding_the_pod
from training.launch.task import RankPlace, RankTask
from training.network import free_port
from training.rundir import RunDirectory
from training.worker import run_rank
from tune.trial.gate import Gate

_CONTROL = "control"
_ANSWER_SECONDS = 5.0
"""How long a process may take to say whether it is usable: a GPU may have work left."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where a rank's process runs: the node, its address, and the GPUs that Ray has given the process."""

    node: str
    address: str
    gpus: tuple[str, ...]


@ray.remote(concurrency_groups={_CONTROL: 1}, max_restarts=0)
class Rank:
    """One rank. `run` occupies it; the methods of the control group answer meanwhile."""

    def __init__(self) -> None:
        self._pod = ExitStack()
        self._pod.enter_context(holding_the_pod())
        self._gate: Gate | None = None
        self._allowed: dict[int, int] = {}
        self._starting = threading.Lock()

    def host(self) -> Host:
        """Where this process runs."""
        context = ray.get_runtime_context()
        gpus = tuple(map(str, ray.get_gpu_ids()))
        return Host(node=context.get_node_id(), address=ray.util.get_node_ip_address(), gpus=gpus)

    def see_gpus(self, gpus: list[str]) -> None:
        """Make the GPUs of all ranks of this node visible: torch numbers them by local rank, and NCCL connects them directly."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)

    def free_port(self, host: str) -> int:
        """A port that rank 0 can listen on."""
        return free_port(host)

    def run(self, task: dict[str, Any], place: RankPlace, number: int, until_epoch: int) -> dict[str, Any]:
        """Run the rank of an attempt to its end.

        Args:
            task: `RankTask.dump`.
            place: the rank.
            number: of the attempt, among all of this process.
            until_epoch: last epoch that it may begin before `allow`.
        """
        loaded = RankTask.load(task)
        gate = self._make_gate(loaded.run_directory, number, until_epoch)
        try:
            with stack_on_death(loaded.run_directory, attempt=loaded.attempt, rank=place.rank):
                return run_rank(loaded, place, gate=gate).dump()
        finally:
            self._gate = None
            _release_memory()

    def is_usable(self) -> bool:
        """Whether this process can run another attempt, once `run` has failed."""
        _release_memory()  # again: the traceback has held the model until now
        return _has_left_its_peers() and _has_a_sound_gpu()

    def _make_gate(self, run_directory: Path, number: int, until_epoch: int) -> Gate:
        is_stop_requested = RunDirectory(run_directory).stop_is_requested
        with self._starting:
            allowed = max(until_epoch, self._allowed.pop(number, 0))
            self._gate = Gate(until_epoch=allowed, is_stop_requested=is_stop_requested)
            return self._gate

    @ray.method(concurrency_group=_CONTROL)  # type: ignore[untyped-decorator]
    def allow(self, number: int, until_epoch: int) -> None:
        """Let an attempt train up to and including an epoch; it may not have begun yet."""
        with self._starting:
            if self._gate is None:
                self._allowed = {number: until_epoch}
            else:
                self._gate.open(until_epoch=until_epoch)


class RankGroup:
    """The ranks of one trial at a time, in the bundles of a placement group after its first one."""

    def __init__(self, group: PlacementGroup, scale: ScaleSettings, *, gpus_per_worker: float, is_local: bool) -> None:
        """Args: `is_local` makes the ranks meet on the loopback interface."""
        self._group = group
        self._scale = scale
        self._gpus = gpus_per_worker if scale.gpu else 0.0
        self._is_local = is_local
        self._of_bundle: dict[int, ActorHandle[Rank]] = {}
        self._bundles: list[int] = []  # by rank
        self._places: list[RankPlace] = []
        self._attempts = 0

    def start(self) -> None:
        """Start the processes that are missing, and wait for them.

        Raises:
            ray.exceptions.RayActorError: one of them died.
            ray.exceptions.GetTimeoutError: they have not started within `scale.start_timeout`: a node of theirs is gone.
        """
        missing = set(range(1, self._scale.workers + 1)) - set(self._of_bundle)
        if not missing:
            return
        for bundle in missing:
            self._of_bundle[bundle] = Rank.options(  # type: ignore[attr-defined] # Ray's decorator
                num_cpus=self._scale.cpus_per_worker,
                num_gpus=self._gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=self._group, placement_group_bundle_index=bundle
                ),
            ).remote()
        started = [self._of_bundle[bundle] for bundle in sorted(self._of_bundle)]
        hosts = ray.get([rank.host.remote() for rank in started], timeout=self._scale.start_timeout)
        # Ranks of one node in a row, and rank 0 on the node that reads its log.
        here = ray.get_runtime_context().get_node_id()
        order = sorted(range(len(started)), key=lambda index: (hosts[index].node != here, hosts[index].node, index))
        self._bundles = [sorted(self._of_bundle)[index] for index in order]
        self._places = _places([hosts[index] for index in order], is_local=self._is_local)
        if self._gpus == 1:
            self._share_gpus([hosts[index] for index in order])

    @property
    def _ranks(self) -> list[ActorHandle[Rank]]:
        return [self._of_bundle[bundle] for bundle in self._bundles]

    def _share_gpus(self, hosts: list[Host]) -> None:
        of_node: dict[str, set[str]] = {}
        for host in hosts:
            of_node.setdefault(host.node, set()).update(host.gpus)
        ray.get(
            [rank.see_gpus.remote(sorted(of_node[host.node])) for rank, host in zip(self._ranks, hosts, strict=True)]
        )

    def run(self, task: RankTask, *, until_epoch: int) -> list[ray.ObjectRef[dict[str, Any]]]:
        """Start an attempt on all ranks; returns their outcomes to come, by rank."""
        first = self._places[0]
        port = ray.get(self._ranks[0].free_port.remote(first.master_address))
        self._attempts += 1
        return [
            rank.run.remote(task.dump(), replace(place, master_port=port), self._attempts, until_epoch)
            for rank, place in zip(self._ranks, self._places, strict=True)
        ]

    def allow(self, until_epoch: int) -> None:
        """Let the newest attempt train up to and including an epoch."""
        first = self._of_bundle.get(self._bundles[0]) if self._bundles else None
        if first is not None:
            first.allow.remote(self._attempts, until_epoch)

    def keep_usable(self, ended: Collection[int]) -> None:
        """After a failure, kill the processes that cannot run another attempt.

        Args:
            ended: ranks whose attempt has ended. The others hang, or still wait for a peer.
        """
        bundle_of = {self._ranks[rank].is_usable.remote(): self._bundles[rank] for rank in ended}
        answered, _ = ray.wait(list(bundle_of), num_returns=len(bundle_of), timeout=_ANSWER_SECONDS)
        usable = {bundle_of[answer] for answer in answered if _is_true(answer)}
        for bundle in set(self._of_bundle) - usable:
            ray.kill(self._of_bundle.pop(bundle))

    def kill(self) -> None:
        """Kill all processes; `start` starts new ones."""
        for rank in self._of_bundle.values():
            ray.kill(rank)
        self._of_bundle = {}


def _is_true(answer: ray.ObjectRef[bool]) -> bool:
    try:
        return bool(ray.get(answer))
    except RayError:
        return False


def _places(hosts: list[Host], *, is_local: bool) -> list[RankPlace]:
    """The places of the ranks, without a port yet."""
    nodes = [host.node for host in hosts]
    return [
        RankPlace(
            rank=rank,
            world=len(hosts),
            local_rank=nodes[:rank].count(node),
            local_world=nodes.count(node),
            master_address="127.0.0.1" if is_local else hosts[0].address,
            master_port=0,
        )
        for rank, node in enumerate(nodes)
    ]


def _has_left_its_peers() -> bool:
    """Whether the process group of the last attempt has ended."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is None or not bool(distributed.is_initialized())


def _has_a_sound_gpu() -> bool:
    """Whether CUDA still works: after a fault in a kernel, every later call of the process fails too."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _release_memory() -> None:
    """Return what the last trial has used: the next one's model may be larger."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
