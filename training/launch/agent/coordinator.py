"""The driver's end of the agents: it waits for them, starts attempts on them, and collects how each rank ended."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from queue import Empty, Queue

from training.launch.agent.messages import (
    Abandon,
    AskPort,
    Ended,
    Hello,
    Message,
    Port,
    Release,
    Start,
    Stop,
    receive,
    send,
)
from training.launch.task import Outcome, RankPlace, RankTask, WorkersFailedError

_PATIENCE_S = 10.0
"""How long a rank may take to leave an attempt that failed elsewhere: it notices a lost peer at the next collective, or after the step."""

_SILENCE_S = 5.0
"""How much longer its agent may take to say so; one that is silent is on a machine that is gone."""

_CHECK_S = 0.2
"""Interval at which the worker group is checked while no agent says anything."""

_BACKLOG = 1024
"""Connections that may wait to be accepted: the agents of a large run start at the same time."""


@dataclass(eq=False, kw_only=True)
class _Peer:
    """A connected agent."""

    hello: Hello
    connection: Connection


class Coordinator:
    """Listens for the agents of a worker group. All methods but those of its threads belong to one thread."""

    def __init__(self, *, host: str, world: int) -> None:
        """Listen on a free port of an address of this machine, which the agents can reach, for as many agents."""
        self._world = world
        self._listener = Listener((host, 0), "AF_INET", backlog=_BACKLOG)
        self.key = secrets.token_bytes(32)
        """Shared with the agents, which prove that they know it."""
        self._heard: Queue[tuple[_Peer, Message | None]] = Queue()
        self._peers: dict[int, _Peer] = {}
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._is_released = False
        self._connected: list[_Peer] = []
        threading.Thread(target=self._accept, name="agents", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._listener.address
        return str(host), int(port)

    @property
    def has_all(self) -> bool:
        """Whether all agents are connected, as far as `run` has noticed."""
        return len(self._peers) == self._world

    def run(self, task: RankTask, *, check: Callable[[], None]) -> Outcome:
        """Run an attempt on all agents, once they are connected.

        Args:
            task: the attempt.
            check: called often while nothing else happens; raises if the worker group has ended.

        Returns:
            The outcome of rank 0.

        Raises:
            WorkersFailedError: a rank failed or died; raised when no rank runs the attempt any more.
        """
        while not self.has_all:
            self._next(check)
        first = self._peers[0]
        self._send(first, AskPort())
        port = None
        while not isinstance(port, Port):
            peer, port = self._next(check)
            if port is None:
                raise _lost(peer)
        for peer in self._peers.values():
            self._send(peer, Start(task=task.dump(), place=asdict(_place(peer.hello, first.hello, port.port))))
        return _Attempt(self._peers, self._next, self._send).collect(check)

    def ask_to_stop(self) -> None:
        """Ask the ranks to commit and stop at the same step; the attempt then ends as `stopped`."""
        if (first := self._peers.get(0)) is not None:
            self._send(first, Stop())

    @property
    def nodes(self) -> dict[int, str]:
        """The Ray node of each rank."""
        return {rank: peer.hello.node for rank, peer in sorted(self._peers.items())}

    def release(self) -> None:
        """Let the agents end, and listen no more."""
        with self._lock:
            self._is_released = True
            connected = list(self._connected)
        for peer in connected:
            self._send(peer, Release())
        self._listener.close()

    def _next(self, check: Callable[[], None]) -> tuple[_Peer, Message | None]:
        """What an agent said, None for one that is gone; new agents are added on the way."""
        while True:
            try:
                peer, message = self._heard.get(timeout=_CHECK_S)
            except Empty:
                check()
                continue
            if isinstance(message, Hello):
                self._peers[message.rank] = peer
            elif message is None and self._peers.get(peer.hello.rank) is peer:
                del self._peers[peer.hello.rank]
            return peer, message

    def _send(self, peer: _Peer, message: Message) -> None:
        """Send; a lost agent is reported by the thread that listens to it."""
        with suppress(OSError):
            send(peer.connection, message)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed, or nobody is there any more
                if self._is_released:
                    return
                continue
            threading.Thread(target=self._listen, args=(connection,), name="agent", daemon=True).start()

    def _listen(self, connection: Connection) -> None:
        peer: _Peer | None = None
        try:
            deliver_challenge(connection, self.key)
            answer_challenge(connection, self.key)
            hello = receive(connection)
            if not isinstance(hello, Hello):
                return
            peer = _Peer(hello=hello, connection=connection)
            with self._lock:
                self._connected.append(peer)
                is_late = self._is_released
            if is_late:
                self._send(peer, Release())
            self._heard.put((peer, hello))
            while True:
                self._heard.put((peer, receive(connection)))
        except (EOFError, OSError, AuthenticationError):
            if peer is not None:
                self._heard.put((peer, None))
        finally:
            connection.close()


class _Attempt:
    """An attempt that runs on the agents."""

    def __init__(
        self,
        peers: dict[int, _Peer],
        listen: Callable[[Callable[[], None]], tuple[_Peer, Message | None]],
        tell: Callable[[_Peer, Message], None],
    ) -> None:
        self._running = dict(peers)
        self._listen = listen
        self._tell = tell
        self._ended: dict[int, Ended] = {}
        self._gone: list[int] = []
        self._deadline: float | None = None

    def collect(self, check: Callable[[], None]) -> Outcome:
        """Wait until it has ended on every rank, and end it everywhere once it has failed on one."""
        while self._running:
            try:
                peer, message = self._listen(lambda: self._check(check))
            except TimeoutError:
                break
            rank = peer.hello.rank
            if self._running.get(rank) is not peer or not isinstance(message, Ended | None):
                continue
            del self._running[rank]
            if message is None:
                self._gone.append(rank)
            else:
                self._ended[rank] = message
            if message is None or message.outcome is None:
                self._abandon()
        return self._result()

    def _check(self, check: Callable[[], None]) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeoutError
        check()

    def _abandon(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + _PATIENCE_S + _SILENCE_S
            for peer in self._running.values():
                self._tell(peer, Abandon(seconds=_PATIENCE_S))

    def _result(self) -> Outcome:
        outcomes = [self._ended[rank].outcome for rank in sorted(self._ended)]
        first = outcomes[0] if outcomes else None
        gone = [*self._gone, *self._running]
        if not gone and first is not None and None not in outcomes:
            return Outcome(**first)
        died = {
            rank: one.status for rank, one in self._ended.items() if one.status is not None and not one.was_abandoned
        }
        said = [f"rank {rank}: {one.error}" for rank, one in sorted(self._ended.items()) if one.error]
        said += [f"the Ray worker of rank {rank} is gone" for rank in sorted(self._gone)]
        said += [f"the machine of rank {rank} does not answer" for rank in sorted(self._running)]
        raise WorkersFailedError("\n".join(said) or "a rank died", exits={**died, **dict.fromkeys(gone)})


def _lost(peer: _Peer) -> WorkersFailedError:
    return WorkersFailedError(f"the Ray worker of rank {peer.hello.rank} is gone", exits={peer.hello.rank: None})


def _place(hello: Hello, first: Hello, port: int) -> RankPlace:
    return RankPlace(
        rank=hello.rank,
        world=hello.world,
        local_rank=hello.local_rank,
        local_world=hello.local_world,
        master_address=first.host,
        master_port=port,
    )
