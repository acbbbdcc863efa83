"""When a command on several nodes ends, and with which exit status: decisions without Ray or processes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from infra.spec.errors import ExitStatus
from training.script.command_line import not_found_remedy

GRACE_SECONDS = 30.0
"""Time to save and exit for the other nodes after one failed: the default of a pod's terminationGracePeriodSeconds."""

_AGAIN = "RESTARTS=1 starts a command again that resumes by itself"

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SIGNALLED = 128
_KILLED = 137


class Action(Enum):
    """What the driver does to all nodes whose command still runs."""

    TERMINATE = auto()
    KILL = auto()


class Failure(NamedTuple):
    """The first failure of a command.

    Attributes:
        message: node, host and what happened.
        status: exit status of the job.
        remedy: how to fix it; may be empty.
    """

    message: str
    status: int
    remedy: str = ""


@dataclass
class Ending:
    """The nodes of a command, and how it ends.

    Attributes:
        text: the command line.
        hosts: name of each node's host.
        running: numbers of the nodes on which it runs.
        failure: the first failure; the others follow from it or from the request to stop.
    """

    text: str
    hosts: list[str]
    running: set[int] = field(init=False)
    failure: Failure | None = field(default=None, init=False)
    _stops: int = field(default=0, init=False)
    _kill_at: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """All nodes run it."""
        self.running = set(range(len(self.hosts)))

    def ended(self, node: int, status: int, *, now: float) -> Action | None:
        """The command has ended on a node; a failure ends it on the others."""
        self.running.discard(node)
        if status == 0 or self.failure is not None or self.is_stopping:
            return None
        message = f"{self._place(node)}: {self.text!r} {describe_status(status)}"
        return self._fail(Failure(message, status, remedy_of(status)), now=now)

    def lost(self, node: int, reason: str, *, now: float) -> Action | None:
        """A node is gone, and its command with it."""
        self.running.discard(node)
        if self.is_stopping:
            return None
        if self.failure is not None:
            if self._kill_at is None:  # it was drained, and the others have had as long to save
                self._kill_at = now + GRACE_SECONDS
            return None
        message = f"{self._place(node)} was lost while {self.text!r} ran: {reason}"
        remedy = f"its machine or pod is gone, or had too little memory; {_AGAIN}"
        return self._fail(Failure(message, ExitStatus.FAILED, remedy), now=now)

    def drained(self, nodes: Iterable[int]) -> Action | None:
        """Nodes are about to go: the command may save on all of them, for as long as the nodes stay."""
        going = sorted(set(nodes) & self.running)
        if not going or self.failure is not None or self.is_stopping:
            return None
        message = f"{self._place(going[0])} is being drained while {self.text!r} runs"
        self.failure = Failure(message, ExitStatus.FAILED, _AGAIN)
        return Action.TERMINATE

    def asked_to_stop(self) -> Action | None:
        """Somebody asks the job to stop: the command may take the time that its pods have; a second request kills it.

        After a failure or a drain, as at the end of the whole cluster, it has SIGTERM already: another would interrupt it while it saves.
        """
        self._stops += 1
        if self._stops > 1:
            return Action.KILL
        return Action.TERMINATE if self.failure is None else None

    def overdue(self, *, now: float) -> Action | None:
        """Whether nodes have had the time to exit after another one failed."""
        if self._kill_at is None or now < self._kill_at:
            return None
        self._kill_at = math.inf
        return Action.KILL

    @property
    def is_stopping(self) -> bool:
        """Whether the job was asked to stop."""
        return self._stops > 0

    @property
    def status(self) -> int:
        """Exit status of the job: the first failure's; a job that was asked to stop is interrupted."""
        if self.failure is not None:
            return self.failure.status
        return ExitStatus.INTERRUPTED if self.is_stopping else ExitStatus.DONE

    def _fail(self, failure: Failure, *, now: float) -> Action | None:
        self.failure = failure
        self._kill_at = now + GRACE_SECONDS
        return Action.TERMINATE if self.running else None

    def _place(self, node: int) -> str:
        return f"node {node} ({self.hosts[node]})" if len(self.hosts) > 1 else self.hosts[node]


def describe_status(status: int) -> str:
    """How a command ended, in words."""
    if status > _SIGNALLED:
        return f"was ended by signal {status - _SIGNALLED} (exit status {status})"
    return f"exited with status {status}"


def remedy_of(status: int) -> str:
    """What to do about an exit status; empty if it says nothing beyond the command's own output."""
    if status == _NOT_FOUND:
        return f"the shell did not find the program: {not_found_remedy()}"
    if status == _NOT_EXECUTABLE:
        return "the file is not executable: chmod +x, or start it with its interpreter, e.g. bash train.sh"
    if status == _KILLED:
        return (
            "the kernel kills a process whose pod has no memory left: ask for larger nodes, or load less data at once"
        )
    return ""
