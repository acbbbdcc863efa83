"""`open`: opens UIs of a stack until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue

from infra.kube.stack_connection import connect
from infra.spec.errors import ExitStatus
from infra.spec.section import did_you_mean
from infra.spec.signals import interrupting
from infra.spec.uis import RAY, UI_NAMES
from training.cluster.context import read_target
from training.cluster.uis.connection import Failed, Lost, News, Opened, Over, connected
from training.cluster.uis.gate import Gate
from training.cluster.uis.proxy import LocalProxy
from training.cluster.uis.ray import ray_ui
from training.cluster.uis.shared import shared_ui
from training.cluster.uis.ui import Stack, Ui
from training.errors import SettingsError
from training.local_port import local_port
from training.options.services import OpenOptions

_KEY_BYTES = 16


def open_uis(arguments: OpenOptions) -> ExitStatus:
    """Open UIs at local ports, with the caller's permissions, until Ctrl-C or until all of them have ended."""
    names = _names(arguments)
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    stack = Stack(
        env=arguments.env,
        target=target,
        api=connect(target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ),
        kubeconfig=arguments.kubeconfig,
        environment=os.environ,
    )
    uis = [_ui(name, stack, arguments) for name in names]
    try:
        # Also without Ctrl-C no forward may stay behind.
        with interrupting([signal.SIGTERM, signal.SIGHUP]):
            _serve(uis, port=arguments.port)
    except KeyboardInterrupt:
        print()
    return ExitStatus.DONE


def _names(arguments: OpenOptions) -> list[str]:
    """The UIs to open.

    Raises:
        SettingsError: none or an unknown one is named, or an option does not fit them.
    """
    names = list(dict.fromkeys(arguments.what))
    if not names:
        raise SettingsError("no UI is named", remedy=f"WHAT=…, one or more of {', '.join(UI_NAMES)}")
    for name in names:
        if name not in UI_NAMES:
            remedy = f"{did_you_mean(name, UI_NAMES)} WHAT=… takes {', '.join(UI_NAMES)}".lstrip()
            raise SettingsError(f"unknown UI {name!r}", remedy=remedy)
    if arguments.port and len(names) > 1:
        raise SettingsError(
            f"port {arguments.port} is one port, for {len(names)} UIs", remedy="name one UI, or omit PORT=… (--port)"
        )
    if arguments.job is not None and RAY not in names:
        raise SettingsError(
            f"job {arguments.job} is for WHAT={RAY}", remedy=f"omit JOB=… (--job), or add {RAY} to WHAT"
        )
    return names


def _ui(name: str, stack: Stack, arguments: OpenOptions) -> Ui:
    if name == RAY:
        return ray_ui(stack, team=arguments.team, job=arguments.job)
    return shared_ui(name, stack, team=arguments.team)


def _serve(uis: Sequence[Ui], *, port: int) -> None:
    """Serve UIs until all have ended.

    Raises:
        PlatformError: one cannot be opened.
    """
    news: SimpleQueue[tuple[Ui, News]] = SimpleQueue()
    with ExitStack() as stack:
        urls: dict[str, str] = {}
        for ui in uis:
            is_guarded = ui.find_authorization is not None
            gate = Gate(
                port=local_port(port, usual=ui.port),
                start=ui.start,
                key=secrets.token_urlsafe(_KEY_BYTES) if is_guarded else None,
            )
            proxy = stack.enter_context(LocalProxy(gate, title=ui.title))
            urls[ui.title] = gate.url
            stack.enter_context(connected(ui, proxy, partial(_put, news, ui)))
        _report(news, urls)


def _put(news: SimpleQueue[tuple[Ui, News]], ui: Ui, one: News) -> None:
    news.put((ui, one))


def _report(news: SimpleQueue[tuple[Ui, News]], urls: dict[str, str]) -> None:
    """Print what happens to the UIs until all of them have ended."""
    waiting, running = dict(urls), set(urls)
    while running:
        ui, one = news.get()
        match one:
            case Failed(error):
                raise error
            case Opened():
                url = waiting.pop(ui.title, None)
                print(f"{ui.title}: {url}" if url else f"{ui.title}: reconnected", flush=True)
                if url and not waiting:
                    print("Ctrl-C ends the connection", flush=True)
            case Lost(trouble, wait):
                print(f"{ui.title}: connection lost, retrying in {wait:g} s: {trouble}", flush=True)
            case Over():
                print(f"{ui.title} has ended", flush=True)
                running.discard(ui.title)
