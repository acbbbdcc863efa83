"""What the driver and the agents tell each other, as JSON over an authenticated connection."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The first message of an agent.

    Attributes:
        worker: name of its worker, which no other of the run has.
        host: address of its machine that the other agents can reach.
        node: id of its Ray node; empty without Ray.
        gpu: index of its GPU among those that its process can see.
    """

    worker: str
    host: str
    node: str = ""
    gpu: int = 0


@dataclass(frozen=True, kw_only=True)
class AskPort:
    """To the agent of rank 0, before every attempt."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """A free port of the agent's machine, on which rank 0 can listen."""

    port: int


@dataclass(frozen=True, kw_only=True)
class Start:
    """Run an attempt: `RankTask.dump` and the fields of a `RankPlace`."""

    task: dict[str, Any]
    place: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Abandon:
    """The attempt has failed on another rank: end it within some seconds, or kill the rank."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class Stop:
    """To one rank: vote to commit and stop at the next step, as a user who stops the run does."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The attempt has ended on a rank.

    Attributes:
        outcome: `Outcome.dump` if it did not fail.
        error: message of the exception that it raised, which the rank has recorded in the run's folder.
        has_timed_out: a collective did, because a peer did not come.
        status: exit status of a process that died, negative for a signal; None for one that lives.
        was_abandoned: the agent, or NCCL's watchdog, has ended the process, because the attempt had failed elsewhere.
    """

    outcome: dict[str, Any] | None = None
    error: str = ""
    has_timed_out: bool = False
    status: int | None = None
    was_abandoned: bool = False


@dataclass(frozen=True, kw_only=True)
class Release:
    """The run is over: end the rank and the agent."""


Message = Hello | AskPort | Port | Start | Stop | Abandon | Ended | Release

_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Hello, AskPort, Port, Start, Stop, Abandon, Ended, Release)
}


def send(connection: Connection, message: Message) -> None:
    """Send a message.

    Raises:
        OSError: the connection is closed.
    """
    connection.send_bytes(json.dumps({"kind": type(message).__name__, **asdict(message)}).encode())


def receive(connection: Connection) -> Message:
    """The next message; blocks.

    Raises:
        EOFError: the other end has closed the connection, or died.
        OSError: the connection broke.
    """
    record = json.loads(connection.recv_bytes())
    return _KINDS[record.pop("kind")](**record)
