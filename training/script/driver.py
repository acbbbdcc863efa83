"""The driver of a command on a Ray cluster: the program of a `run` job, on its head. Imports Ray."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from infra.spec.errors import RefusedError
from infra.spec.signals import handling
from training.errors import TrainingFailedError
from training.launch.ray_drain import draining_nodes
from training.options.scripts import RunOnNodesOptions
from training.rundir import RunDirectory
from training.script.ending import Action, Ending
from training.script.node import CommandNode, NodeAddress, Progress
from training.script.variables import NodePlace

_POLL_SECONDS = 0.5
_QUESTION_SECONDS = 2.0
_THREADS = 4  # of an actor: one waits in `poll`, while another passes a signal on


class Driver:
    """Starts the command on every node, prints the output of node 0, and ends when all have ended."""

    def __init__(self, options: RunOnNodesOptions, run: RunDirectory) -> None:
        """Connect to nothing yet; the command's own files and a request to stop are in the folder of `run`."""
        self._options = options
        self._run = run
        self._requests = 0
        self._answered = 0
        self._next_question = 0.0
        self._found_draining: frozenset[str] = frozenset()

    def run(self) -> int:
        """Run the command to its end; returns the exit status of the job.

        Raises:
            RefusedError: no cluster answers, or it does not have the nodes.
            TrainingFailedError: a node was lost before the command started there, or it cannot start.
        """
        try:
            ray.init(self._options.address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise RefusedError(
                f"no Ray cluster answers at {self._options.address}",
                remedy="make run ENV=… starts one; its job runs this",
            ) from error
        with handling(
            (signal.SIGTERM, signal.SIGINT), self._ask
        ):  # after `ray.init`, which installs a handler that exits
            try:
                nodes = self._actors(self._placed())
                try:
                    addresses = self._start(nodes)
                except RayError as error:
                    raise TrainingFailedError(f"the command did not start: {_cause(error)}") from error
                return self._await_end(nodes, addresses)
            finally:
                ray.shutdown()

    def _placed(self) -> PlacementGroup:
        """One bundle per node: the job's pods, of which every one is on the cluster when KubeRay starts the driver."""
        options = self._options
        bundle = {"CPU": float(options.cpus), **({"GPU": float(options.gpus)} if options.gpus else {})}
        group = placement_group([bundle] * options.nodes, strategy="STRICT_SPREAD")
        deadline = time.monotonic() + options.start_minutes * 60
        while not group.wait(_POLL_SECONDS):
            if self._is_asked_to_stop():
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                wanted = f"{options.nodes} nodes with {options.cpus} CPUs and {options.gpus} GPUs each"
                known = ", ".join(
                    f"{one['NodeManagerHostname']} ({one['Resources'].get('CPU', 0):g} CPUs, {one['Resources'].get('GPU', 0):g} GPUs)"
                    for one in ray.nodes()
                    if one["Alive"]
                )
                raise RefusedError(
                    f"the cluster does not have {wanted} after {options.start_minutes:g} minutes; its nodes: {known}",
                    remedy="a pod did not start or was lost: make jobs, and make resume once there is capacity",
                )
        return group

    def _actors(self, group: PlacementGroup) -> list[Any]:
        actor = ray.remote(CommandNode)
        return [
            actor.options(
                num_cpus=self._options.cpus,
                num_gpus=self._options.gpus,
                max_concurrency=_THREADS,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
            ).remote(job=self._options.name, rank=rank)
            for rank in range(self._options.nodes)
        ]

    def _start(self, nodes: Sequence[Any]) -> list[NodeAddress]:
        """Start the command on all nodes; returns where they are."""
        places = ray.get([node.__ray_call__.remote(_where) for node in nodes])
        addresses: list[NodeAddress] = ray.get(
            [node.address.remote(*place) for node, place in zip(nodes, places, strict=True)]
        )
        hosts = ", ".join(one.host for one in addresses)
        print(f"{self._options.cmd!r} on {len(nodes)} node{'s' * (len(nodes) > 1)}: {hosts}", flush=True)
        starts = []
        for rank, node in enumerate(nodes):
            place = NodePlace(
                rank=rank,
                nodes=len(nodes),
                processes=max(1, self._options.gpus),
                cpus=self._options.cpus,
                master_address=addresses[0].address,
                master_port=addresses[0].port,
            )
            starts.append(node.start.remote(self._options.cmd, place, self._run.path.resolve()))
        ray.get(starts)
        return addresses

    def _await_end(self, nodes: Sequence[Any], addresses: Sequence[NodeAddress]) -> int:
        ending = Ending(text=self._options.cmd, hosts=[one.host for one in addresses])
        polls = {node.poll.remote(_POLL_SECONDS): rank for rank, node in enumerate(nodes)}
        while polls:
            ready, _ = ray.wait(list(polls), timeout=_POLL_SECONDS)
            for answer in ready:
                rank = polls.pop(answer)
                self._act(self._take(answer, rank, ending), ending, nodes)
                if rank in ending.running:
                    polls[nodes[rank].poll.remote(_POLL_SECONDS)] = rank
            while self._is_asked_to_stop():
                self._act(ending.asked_to_stop(), ending, nodes)
            self._act(ending.overdue(now=time.monotonic()), ending, nodes)
            draining = self._draining()
            self._act(
                ending.drained(rank for rank, one in enumerate(addresses) if one.node_id in draining), ending, nodes
            )
        if ending.failure is not None:
            failed = ending.failure
            print(f"error: {failed.message}" + (f"\n  remedy: {failed.remedy}" if failed.remedy else ""), flush=True)
        return ending.status

    def _take(self, answer: ray.ObjectRef, rank: int, ending: Ending) -> Action | None:
        """Print what a node has sent, and decide what follows if it has ended."""
        now = time.monotonic()
        try:
            progress: Progress = ray.get(answer)
        except ActorUnavailableError:  # its connection broke; it answers again, or Ray reports its death
            time.sleep(_POLL_SECONDS)
            return None
        except RayActorError as error:
            return ending.lost(rank, _cause(error), now=now)
        if rank == 0 or (progress.status and ending.failure is None):
            prefix = f"[node {rank}] " if rank else ""
            print("".join(f"{prefix}{line}\n" for line in progress.lines), end="", flush=True)
        if progress.status is None:
            return None
        if ending.is_stopping:
            print(f"node {rank} ended with status {progress.status}", flush=True)
        return ending.ended(rank, progress.status, now=now)

    def _act(self, action: Action | None, ending: Ending, nodes: Sequence[Any]) -> None:
        if action is None or not ending.running:
            return
        left = sorted(ending.running)
        names = f"node{'s' * (len(left) > 1)} {', '.join(map(str, left))}"
        if action is Action.TERMINATE:
            print(f"sending SIGTERM to the command on {names}", flush=True)
        else:
            print(f"killing the command on {names}", flush=True)
        for rank in left:
            node = nodes[rank]
            (node.terminate if action is Action.TERMINATE else node.kill).remote()

    def _draining(self) -> frozenset[str]:
        """Ids of the nodes that are about to go, asked for every other second: the question goes to Ray's metadata service."""
        if time.monotonic() >= self._next_question:
            self._next_question = time.monotonic() + _QUESTION_SECONDS
            self._found_draining = frozenset(draining_nodes())
        return self._found_draining

    def _is_asked_to_stop(self) -> bool:
        """Whether there is a request to stop that has not been answered: a signal, or once the file that a head's drain writes."""
        if self._run.stop_is_requested():
            self._run.clear_requests()
            self._requests += 1
        if self._answered == self._requests:
            return False
        self._answered += 1
        return True

    def _ask(self, number: signal.Signals) -> None:
        """SIGTERM, which `ray job stop` sends, and Ctrl-C are requests to stop."""
        del number
        self._requests += 1


def _where(_node: object) -> tuple[str, str]:
    """IP address and id of the node that this runs on."""
    return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()


def _cause(error: BaseException) -> str:
    """What Ray says about a failure, in one line."""
    cause = getattr(error, "cause", None)
    text = str(cause if isinstance(cause, BaseException) else error)
    return " ".join(text.split())[:500]
