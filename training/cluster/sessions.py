"""The commands of interactive work: start a session, open a shell in it, reach its job server; `notebook` has one of its own.

A session is a RayJob whose driver waits until nobody uses its cluster (`training.interactive`). So the queue, its limits,
`make jobs`, `make logs` and `make stop` treat it like any job.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.spec.cluster_names import CODE_PATH, RAY_PORTS
from infra.spec.manifest import Manifest
from platform_charts.jobs.capacity_end import lasting_capacity
from platform_charts.jobs.placement import place_job
from platform_charts.jobs.price import describe_choice, usd_per_hour
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from training.cluster.code_sync import STATES, check_code, copy_once, synchronized
from training.cluster.context import ClusterContext
from training.cluster.follow import follow_to_start
from training.cluster.job_manifest import describe_size
from training.cluster.kubectl import Kubectl
from training.cluster.session_access import Session, find_session, kubectl_of, ray_token, session_name
from training.cluster.steps import connection_of, context_of, submit_job
from training.errors import ExitStatus, SettingsError
from training.interactive.cost import describe_cost
from training.interactive.idle import minutes_of
from training.options.sessions import ClusterCommandOptions, ForwardOptions, NewSessionOptions, ShellOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_START_HOURS = 1.0
_SHELL = f"cd {CODE_PATH} 2>/dev/null; exec /bin/bash"


def cluster(arguments: ClusterCommandOptions) -> int:
    """Queue a session, wait until it runs, and print how to use it and what it costs."""
    minutes_of(arguments.idle)  # an invalid time is refused before the stack is read
    if arguments.detach and arguments.code is not None:
        raise SettingsError(
            "code is copied to a session that runs, and --detach does not wait for it",
            remedy="omit --detach, or copy it later: make shell or make notebook with CODE=…",
        )
    check_code(arguments.code)
    context = context_of(arguments)
    api = connection_of(context, arguments)
    made = start_session(arguments, context, api, name=_new_name(arguments))
    session = Session(context=context, api=api, name=made["metadata"]["name"])
    if not arguments.detach:
        state = follow_to_start(api, context, made)
        if state is None:
            return ExitStatus.INTERRUPTED
        if state.status is not None:
            return state.status
    if arguments.code is not None:
        copy_once(session, kubectl_of(session.context, arguments), arguments.code)
    print(_usage(context, session.name, arguments))
    return ExitStatus.DONE


def start_session(arguments: NewSessionOptions, context: ClusterContext, api: KubernetesApi, *, name: str) -> Manifest:
    """Submit a session's RayJob, and print its size and price; raises like `session_request` and `submit_job`."""
    request, price = session_request(arguments, context, name=name)
    target = lasting_capacity(request, context.target, now=datetime.now(UTC))
    if request.has_choice:
        print(describe_choice(place_job(request, target), target))
    made = submit_job(api, context, render_job(request, target))
    cost = "" if price is None else f", about ${price:,.2f} an hour"
    print(f"session {request.name}: {describe_size(made)}{cost} while it runs")
    return made


def shell(arguments: ShellOptions) -> ExitStatus:
    """Open a shell in a worker of a session, which has its GPUs, or in its head."""
    check_code(arguments.code)
    session = find_session(arguments)
    kind = "head" if arguments.head else "worker"
    pod = session.pod(kind)
    is_terminal = sys.stdin.isatty()
    terminal = ("--stdin", "--tty") if is_terminal else ("--stdin",)
    container = f"--container=ray-{kind}"
    kubectl = kubectl_of(session.context, arguments)
    with synchronized(session, kubectl, arguments.code, say=_say_beside_shell if is_terminal else print):
        status = kubectl.run("exec", *terminal, pod, container, "--", "/bin/bash", "-c", _SHELL)
    return ExitStatus.DONE if status == 0 else ExitStatus.FAILED


def forward(arguments: ForwardOptions) -> ExitStatus:
    """Forward a local port to the dashboard and job server of a session until Ctrl-C."""
    check_code(arguments.code)
    session = find_session(arguments)
    pod = session.pod("head")
    kubectl = kubectl_of(session.context, arguments)
    with synchronized(session, kubectl, arguments.code):
        token = _save_token(kubectl, pod, session.name)
        print(
            f"dashboard and job server of {session.name} at http://127.0.0.1:{arguments.port}, until Ctrl-C; in another "
            f"terminal:\n{job_submission(token, port=arguments.port)}",
            flush=True,
        )
        ports = f"{arguments.port}:{RAY_PORTS['dashboard']}"
        try:
            status = kubectl.run("port-forward", "--address=127.0.0.1", f"pod/{pod}", ports)
        finally:
            token.unlink(missing_ok=True)
    print(f"session {session.name} goes on\n  stop it: {session.context.hint('stop', session.name)}")
    return ExitStatus.DONE if status == 0 else ExitStatus.FAILED


def job_submission(token: Path, *, port: int) -> str:
    """The commands that submit a job through the forwarded port.

    Args:
        token: file with the cluster's token.
        port: the local port.
    """
    return (
        f"  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={shlex.quote(str(token))}\n"
        f"  ray job submit --address http://127.0.0.1:{port} --working-dir . -- python script.py"
    )


def cost_so_far(job: Manifest, *, now: datetime) -> str:
    """GPU-hours and cost of a session since its admission, which the session's own program no longer prints if it is stopped.

    Args:
        job: its RayJob.
        now: the time, with its zone.
    """
    given = dict(
        word.removeprefix("--").split("=", 1) for word in shlex.split(job["spec"]["entrypoint"]) if "=" in word
    )
    started = (job.get("status") or {}).get("startTime")
    seconds = 0.0 if started is None else (now - datetime.fromisoformat(started)).total_seconds()
    price = given.get("usd-per-hour")
    return describe_cost(seconds, gpus=int(given["gpus"]), usd_per_hour=None if price is None else float(price))


def session_request(
    arguments: NewSessionOptions, context: ClusterContext, *, name: str
) -> tuple[JobRequest, float | None]:
    """The job of a session, and the price of its GPUs in US dollars per hour, or None if that is unknown.

    Raises:
        SettingsError: a name, a limit or a size is invalid.
        RefusedError: no group is large enough, or a Capacity Block ends earlier.
    """
    if not arguments.hours > 0:
        raise SettingsError(f"hours={arguments.hours} must be more than 0")
    limits = {"gpus": arguments.gpus, "idle-minutes": minutes_of(arguments.idle), "hours": arguments.hours}
    command = ("python", "-m", "training", "session", *(f"--{key}={value:g}" for key, value in limits.items()))
    request = JobRequest(
        name=name,
        kind="session",
        team=context.team.name,
        settings_yaml="",
        workers=arguments.gpus or arguments.workers,
        gpus_per_worker=1 if arguments.gpus else 0,
        cpus_per_worker=1 if arguments.gpus else arguments.cpus,
        group=arguments.group,
        gpu_model=arguments.gpu_model,
        spot=bool(arguments.spot),
        priority=arguments.priority or "normal",
        # The session ends by itself before that.
        deadline_hours=arguments.hours + _START_HOURS,
        start_hours=_START_HOURS,
        image=arguments.image,
        command=command,
    )
    target = lasting_capacity(request, context.target, now=datetime.now(UTC))
    price = usd_per_hour(place_job(request, target), target)
    return (
        (request, None) if price is None else (replace(request, command=(*command, f"--usd-per-hour={price:g}")), price)
    )


def _new_name(arguments: NewSessionOptions) -> str:
    return session_name(arguments.run or f"{datetime.now(UTC):%Y%m%d-%H%M%S}")


def _usage(context: ClusterContext, name: str, arguments: ClusterCommandOptions) -> str:
    return (
        f"  JupyterLab:               {context.hint('notebook', name)}\n"
        f"  shell with GPUs:          {context.hint('shell', name)}\n"
        f"  dashboard, job server:    {context.hint('forward', name)}\n"
        f"  log:                      {context.hint('logs', name)}\n"
        f"  stop it:                  {context.hint('stop', name)}\n"
        f"It ends by itself after {minutes_of(arguments.idle):g} minutes without use, at the latest after {arguments.hours:g} h."
    )


def _save_token(kubectl: Kubectl, pod: str, name: str) -> Path:
    """Write the cluster's token to a file that only this user reads."""
    token = ray_token(kubectl, pod)
    STATES.mkdir(parents=True, exist_ok=True)
    file = STATES.resolve() / f"{name}.token"
    file.touch(mode=0o600)
    file.write_text(token, encoding="utf-8")
    return file


def _say_beside_shell(line: str) -> None:
    """Print a line in a terminal that passes every key to a shell, and so needs its own carriage return."""
    print(f"\r\n[{line}]\r", file=sys.stderr, flush=True)
