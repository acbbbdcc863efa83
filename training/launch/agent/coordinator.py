"""The driver's end of the agents: it accepts them, starts attempts on some of them, and collects how each rank ended."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
from training.launch.agent.places import in_rank_order, local_ranks
from training.launch.task import Outcome, RankPlace, RankTask, WorkersFailedError

_PATIENCE_S = 10.0
"""How long a rank may take to leave an attempt that failed elsewhere: it notices a lost peer at the next collective, or after the step."""

_PATIENCE_AFTER_TIMEOUT_S = 3.0
"""The same if its peers have waited for it in vain: it hangs. Ranks that only wait, too, leave once their state is kept."""

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
    """Listens for the agents of a run, which come and go. All methods but those of its threads belong to one thread."""

    def __init__(self, *, host: str) -> None:
        """Listen on a free port of an address of this machine, which the agents can reach."""
        self._listener = Listener((host, 0), "AF_INET", backlog=_BACKLOG)
        self.key = secrets.token_bytes(32)
        """Shared with the agents, which prove that they know it."""
        self._heard: Queue[tuple[_Peer, Message | None]] = Queue()
        self._peers: dict[str, _Peer] = {}
        self._first: _Peer | None = None
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
    def agents(self) -> Mapping[str, Hello]:
        """The agents that are connected, by the name of their worker, in the order in which they came; as far as it is known by now."""
        return {worker: peer.hello for worker, peer in self._peers.items()}

    def wait(self, is_enough: Callable[[], bool], *, check: Callable[[], None]) -> None:
        """Wait until the agents are enough; calls `check` often while nothing happens."""
        while not is_enough():
            self._next(check)

    def run(self, task: RankTask, workers: Sequence[str], *, check: Callable[[], None]) -> Outcome:
        """Run an attempt on agents that are connected, as many as its settings have workers.

        Args:
            task: the attempt.
            workers: names of their workers; the node of the first one has rank 0.
            check: called often while nothing else happens; raises if the attempt has no use any more.

        Returns:
            The outcome of rank 0.

        Raises:
            WorkersFailedError: a rank failed or died; raised when no rank runs the attempt any more.
        """
        chosen = in_rank_order([self._peers[worker].hello for worker in workers])
        ranks = {rank: self._peers[hello.worker] for rank, hello in enumerate(chosen)}
        self._first = ranks[0]
        self._send(ranks[0], AskPort())
        port = None
        while port is None:
            peer, message = self._next(check)
            if isinstance(message, Port):
                port = message.port
            elif message is None and peer in ranks.values():
                raise _lost(list(ranks.values()).index(peer))
        for rank, (local_rank, local_world) in enumerate(local_ranks(chosen)):
            place = RankPlace(
                rank=rank,
                world=len(chosen),
                local_rank=local_rank,
                local_world=local_world,
                master_address=chosen[0].host,
                master_port=port,
                gpu=chosen[rank].gpu,
            )
            self._send(ranks[rank], Start(task=task.dump(), place=asdict(place)))
        attempt = _Attempt(ranks, self._next, self._send)
        try:
            return attempt.collect(check)
        finally:
            for peer in attempt.silent:
                self._drop(peer)

    def ask_to_stop(self) -> None:
        """Ask the ranks to commit and stop at the same step; the attempt then ends as `stopped`."""
        if self._first is not None:
            self._send(self._first, Stop())

    def dismiss(self, worker: str) -> None:
        """Let an agent end that no attempt runs on."""
        if (peer := self._peers.pop(worker, None)) is not None:
            self._send(peer, Release())

    def release(self) -> None:
        """Let all agents end, and listen no more."""
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
                self._peers[message.worker] = peer
            elif message is None and self._peers.get(peer.hello.worker) is peer:
                del self._peers[peer.hello.worker]
            return peer, message

    def _drop(self, peer: _Peer) -> None:
        """Forget an agent that does not answer; it ends itself when it finds the connection closed."""
        if self._peers.get(peer.hello.worker) is peer:
            del self._peers[peer.hello.worker]
        with suppress(OSError):
            peer.connection.close()

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
        ranks: Mapping[int, _Peer],
        listen: Callable[[Callable[[], None]], tuple[_Peer, Message | None]],
        tell: Callable[[_Peer, Message], None],
    ) -> None:
        self._running = dict(ranks)
        self._rank_of = {id(peer): rank for rank, peer in ranks.items()}
        self._listen = listen
        self._tell = tell
        self._ended: dict[int, Ended] = {}
        self._gone: list[int] = []
        self._gone_later: list[int] = []
        self._deadline: float | None = None

    @property
    def silent(self) -> list[_Peer]:
        """Those that have not said how the attempt ended."""
        return list(self._running.values())

    def collect(self, check: Callable[[], None]) -> Outcome:
        """Wait until it has ended on every rank, and end it everywhere once it has failed on one."""
        while self._running:
            try:
                peer, message = self._listen(lambda: self._check(check))
            except TimeoutError:
                break
            rank = self._rank_of.get(id(peer), -1)
            if rank not in self._running or not isinstance(message, Ended | None):
                continue
            del self._running[rank]
            if message is None:
                (self._gone if self._deadline is None else self._gone_later).append(rank)
            else:
                self._ended[rank] = message
            if message is None or message.outcome is None:
                self._abandon(is_late=message is not None and message.has_timed_out)
        return self._result()

    def _check(self, check: Callable[[], None]) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeoutError
        check()

    def _abandon(self, *, is_late: bool) -> None:
        """End the attempt on the ranks that still run it; `is_late` if one of them has not come to a collective in time."""
        if self._deadline is None:
            patience = _PATIENCE_AFTER_TIMEOUT_S if is_late else _PATIENCE_S
            self._deadline = time.monotonic() + patience + _SILENCE_S
            for peer in self._running.values():
                self._tell(peer, Abandon(seconds=patience))

    def _result(self) -> Outcome:
        outcomes = [self._ended[rank].outcome for rank in sorted(self._ended)]
        first = outcomes[0] if outcomes else None
        if not (self._gone or self._gone_later or self._running) and first is not None and None not in outcomes:
            return Outcome(**first)
        died = {
            rank: one.status for rank, one in self._ended.items() if one.status is not None and not one.was_abandoned
        }
        exits = {**died, **dict.fromkeys([*self._gone, *self._running])}
        # A group whose first worker is lost may end as a whole: those that go after the failure are its cause only if nobody else is.
        exits = exits or dict.fromkeys(self._gone_later)
        said = [f"rank {rank}: {one.error}" for rank, one in sorted(self._ended.items()) if one.error]
        said += [f"the Ray worker of rank {rank} is gone" for rank in sorted([*self._gone, *self._gone_later])]
        said += [f"the machine of rank {rank} does not answer" for rank in sorted(self._running)]
        raise WorkersFailedError("\n".join(said) or "a rank died", exits=exits)


def _lost(rank: int) -> WorkersFailedError:
    return WorkersFailedError(f"the Ray worker of rank {rank} is gone", exits={rank: None})
