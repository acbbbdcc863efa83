"""`notebook`: JupyterLab in the head of a session, at a port of this machine."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.cluster_names import CODE_PATH
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.signals import interrupting
from training.cluster.code_sync import check_code, synchronized
from training.cluster.context import ClusterContext
from training.cluster.follow import follow_to_start
from training.cluster.kubectl import Kubectl
from training.cluster.port_forward import port_forward
from training.cluster.session_access import Session, has_ended, kubectl_of, newest_session, session_name
from training.cluster.sessions import start_session
from training.cluster.steps import connection_of, context_of
from training.errors import ExitStatus
from training.interactive.idle import minutes_of
from training.local_port import local_port
from training.options.sessions import NotebookOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_USUAL_PORT = 8888
_START_SECONDS = 180.0
_SHORTEST_WAIT = 1.0
_LONGEST_WAIT = 30.0


def notebook(arguments: NotebookOptions) -> int:
    """Start JupyterLab in a session, and the session if it does not run; forward its port until Ctrl-C or its end."""
    minutes_of(arguments.idle)
    check_code(arguments.code)
    port = local_port(arguments.port, usual=_USUAL_PORT)
    context = context_of(arguments)
    api = connection_of(context, arguments)
    kubectl = kubectl_of(context, arguments)
    found = _session(arguments, context, api)
    if isinstance(found, int):
        return found
    try:
        # Also without Ctrl-C the forward must not stay behind, and the last changes must be copied.
        with interrupting([signal.SIGTERM, signal.SIGHUP]), synchronized(found, kubectl, arguments.code):
            return _serve(found, kubectl, port=port)
    except KeyboardInterrupt:
        print(f"\nsession {found.name} goes on\n  stop it: {context.hint('stop', found.name)}")
        return ExitStatus.DONE


def _session(arguments: NotebookOptions, context: ClusterContext, api: KubernetesApi) -> Session | int:
    """The session that runs, after it was started if necessary; the exit status if it does not come to run.

    Raises:
        RefusedError: the named session has ended.
    """
    newest = newest_session(api, context) if arguments.run is None else None
    name = session_name(arguments.run or f"{datetime.now(UTC):%Y%m%d-%H%M%S}")
    session = newest or Session(context=context, api=api, name=name)
    job = session.job()
    if job is None:
        job = start_session(arguments, context, api, name=session.name)
    elif has_ended(job):
        raise RefusedError(f"session {session.name} has ended, and its name is taken", remedy="choose another NAME=…")
    else:
        print(f"session {session.name} exists; its size and limits stay as they are")
    state = follow_to_start(api, context, job)
    if state is None:
        return ExitStatus.INTERRUPTED
    return session if state.status is None else state.status


def _serve(session: Session, kubectl: Kubectl, *, port: int) -> ExitStatus:
    """Forward the port, again and again, until the session is over."""
    shown, wait = "", _SHORTEST_WAIT
    while True:
        try:
            server = _server(session, kubectl)
            ports = f"{port}:{server['port']}"
            command = kubectl.command("port-forward", "--address=127.0.0.1", f"pod/{session.pod('head')}", ports)
            with port_forward(command, url=f"http://127.0.0.1:{port}/api") as forward:
                forward.await_open()
                url = f"http://127.0.0.1:{port}/lab?token={server['token']}"
                print(_usage(session, url) if url != shown else "reconnected", flush=True)
                shown, wait = url, _SHORTEST_WAIT
                trouble = forward.await_broken()
        except (ConnectionError, PlatformError) as error:
            if not shown and not isinstance(error, ConnectionError):
                raise
            trouble = str(error)
        with suppress(ConnectionLostError, ApiError):
            if session.is_over():
                print(f"session {session.name} has ended; its cost: {session.context.hint('logs', session.name)}")
                return ExitStatus.DONE
        print(f"connection to {session.name} lost, it goes on; retrying in {wait:g} s: {trouble}", flush=True)
        time.sleep(wait)
        wait = min(2 * wait, _LONGEST_WAIT)


def _server(session: Session, kubectl: Kubectl) -> dict[str, object]:
    """Port and token of JupyterLab in the head, which is started unless it runs.

    Raises:
        PlatformError: it cannot be started, or the head cannot be reached.
    """
    program = ("python", "-m", "training.interactive.notebook", CODE_PATH)
    command = ("exec", session.pod("head"), "--container=ray-head", "--", *program)
    try:
        answer: dict[str, object] = json.loads(kubectl.output(*command, seconds=_START_SECONDS))
    except ValueError as error:
        raise PlatformError(f"JupyterLab in {session.name}: the answer has no port and token") from error
    except RefusedError as error:
        if "No module named" not in str(error):
            raise
        raise RefusedError(
            f"the image of {session.name} has no JupyterLab: {error.args[0]}",
            remedy="start another session without IMAGE=…, or with an image of make image FROM=folder IMAGE=session "
            f"ENV={session.context.env}",
        ) from error
    return answer


def _usage(session: Session, url: str) -> str:
    return (
        f"JupyterLab of {session.name}, until Ctrl-C:\n"
        f"  {url}\n"
        f"`import ray; ray.init()` in a notebook uses the session's GPUs; {CODE_PATH} is on the import path of every process."
    )
