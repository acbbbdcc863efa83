"""Keeps a UI connected: the port of its pod is forwarded, and again when the pod or the connection is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from infra.spec.errors import PlatformError, RefusedError
from training.cluster.port_forward import PortForward, port_forward
from training.cluster.uis.proxy import LocalProxy, Upstream
from training.cluster.uis.ui import Ui
from training.local_port import local_port

_SHORTEST_WAIT = 1.0
_LONGEST_WAIT = 30.0
_END_SECONDS = 10.0


@dataclass(frozen=True)
class Opened:
    """The UI answers."""


@dataclass(frozen=True)
class Lost:
    """The connection is gone; it is tried again.

    Attributes:
        trouble: why.
        wait: seconds until then.
    """

    trouble: str
    wait: float


@dataclass(frozen=True)
class Over:
    """The UI has ended for good."""


@dataclass(frozen=True)
class Failed:
    """The UI cannot be opened.

    Attributes:
        error: why.
    """

    error: Exception


News = Opened | Lost | Over | Failed


class Connection:
    """A UI's connection; `keep` runs in a thread of its own."""

    def __init__(self, ui: Ui, proxy: LocalProxy, tell: Callable[[News], object]) -> None:
        """Connect nothing yet.

        Args:
            ui: the UI.
            proxy: serves it.
            tell: called with what happens, in that thread.
        """
        self._ui, self._proxy, self._tell = ui, proxy, tell
        self._is_ended = threading.Event()
        self._forward: PortForward | None = None
        self._lock = threading.Lock()

    def keep(self) -> None:
        """Connect until the UI is over or `end` is called; a first connection that fails is an error."""
        try:
            self._connect_again_and_again()
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self._tell(Failed(error))

    def end(self) -> None:
        """End it from another thread; does not wait."""
        self._is_ended.set()
        with self._lock:
            if self._forward is not None:
                self._forward.end()

    def _connect_again_and_again(self) -> None:
        wait, has_opened = _SHORTEST_WAIT, False
        while not self._is_ended.is_set():
            try:
                with self._forwarded() as forward:
                    self._tell(Opened())
                    wait, has_opened = _SHORTEST_WAIT, True
                    trouble = forward.await_broken()
            except (ConnectionError, PlatformError) as error:
                if self._is_ended.is_set():
                    return
                if not has_opened:
                    raise _first_failure(error, self._ui) from error
                trouble = str(error)
            if self._is_ended.is_set():
                return
            with suppress(PlatformError):  # the API server does not answer either
                if self._ui.is_over():
                    self._tell(Over())
                    return
            self._tell(Lost(trouble, wait))
            self._is_ended.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    @contextmanager
    def _forwarded(self) -> Iterator[PortForward]:
        """The port of the UI's pod, while requests go there; login and pod are looked up anew, because both may have changed."""
        pod, port = self._ui.find_pod(), local_port(0, usual=0)
        authorization = self._ui.find_authorization and self._ui.find_authorization()
        ports = f"{port}:{self._ui.port}"
        command = self._ui.kubectl.command("port-forward", "--address=127.0.0.1", f"pod/{pod}", ports)
        with port_forward(command, url=f"http://127.0.0.1:{port}{self._ui.health}") as forward:
            with self._lock:
                self._forward = forward
            if self._is_ended.is_set():  # before `end` knew of the forward
                forward.end()
            try:
                forward.await_open()
                self._proxy.upstream = Upstream(port, authorization)
                yield forward
            finally:
                self._proxy.upstream = None
                with self._lock:
                    self._forward = None


@contextmanager
def connected(ui: Ui, proxy: LocalProxy, tell: Callable[[News], object]) -> Iterator[None]:
    """Keep a UI connected in the background within the block."""
    connection = Connection(ui, proxy, tell)
    thread = threading.Thread(target=connection.keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        connection.end()
        thread.join(_END_SECONDS)


def _first_failure(error: ConnectionError | PlatformError, ui: Ui) -> PlatformError:
    return error if isinstance(error, PlatformError) else RefusedError(f"{ui.title}: {error}")
