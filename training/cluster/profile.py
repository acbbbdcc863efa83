"""`make profile ENV=… JOB=…`: asks a job that trains for a profile, and shows its answer.

The request is a ConfigMap that the job's workers mount (`platform_charts.jobs.requests`), made with the caller's own permissions and
removed when the answer is there. The answer is in the driver's log (`observability.profiling.answer`).
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from infra.kube.errors import ApiError, ConnectionLostError
from infra.spec.cluster_names import PROFILE_REQUEST, SESSION_PREFIX, SUBMITTER_ROLE
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, labels
from infra.spec.signals import handling, interrupt
from infra.spec.uis import Permission
from observability.profiling.answer import read_answer_line
from platform_charts.jobs.rayjob import is_command_job, is_search
from platform_charts.jobs.requests import requests_map, takes_requests
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster import job_manifest
from training.cluster.context import ClusterContext
from training.cluster.driver_log import DriverLog
from training.cluster.follow import follow
from training.cluster.state import JobState, state_of
from training.cluster.steps import job_context, job_named
from training.cluster.submission import owner_reference
from training.cluster.uis.permissions import require
from training.cluster.view import JobView
from training.cluster.watch import watch_of
from training.errors import ExitStatus, SettingsError

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi
    from training.options.runs import ProfileOptions
    from training.profiling.request import ProfileRequest

_PERMISSIONS = (
    Permission(resource="configmaps", verbs=("create", "get", "delete")),
    Permission(resource="pods", verbs=("list",)),
    Permission(resource="pods/log", verbs=("get",)),
)


def profile_job(options: ProfileOptions, request: ProfileRequest) -> ExitStatus:
    """Ask a job for a profile; raises like `ask`, and `SettingsError` for an unknown team."""
    context, api = job_context(options)
    return ask(api, context, options.run, request)


def ask(api: KubernetesApi, context: ClusterContext, name: str | None, request: ProfileRequest) -> ExitStatus:
    """Make a request to a job, follow the job to its answer, print it, and withdraw the request.

    Args:
        api: the cluster.
        context: stack and team.
        name: of the job; None is the team's newest.
        request: the request.

    Raises:
        SettingsError: there is no such job, or it has no run of the trainer.
        RefusedError: it does not train, a request is pending, a permission is missing, the run refuses, or the job ends first.
    """
    _require_role(api, context)
    job = job_named(api, context, name)
    name = str(job["metadata"]["name"])
    _check_kind(job, context, request)
    _check_state(state_of(watch_of(api, context, name).observe()), name, context)
    made = _make(api, context, job, request)
    try:
        with handling([signal.SIGTERM], interrupt):
            return _answer(api, context, name, request)
    except KeyboardInterrupt:
        print(
            f"the request is withdrawn; if job {name} has seen it, the answer is in its log: {context.hint('logs', name)}"
        )
        return ExitStatus.INTERRUPTED
    finally:
        with suppress(ApiError, ConnectionLostError):  # it is deleted with the job
            api.delete(made)


class AnswerView(JobView):
    """Shows what the driver's log says about one request, and the states of a job that no longer trains.

    Attributes:
        answer: `done` or `refused`; empty until then.
        text: folder of the profile, or the reason of the refusal.
    """

    def __init__(self, stream: TextIO, *, is_terminal: bool, request: str) -> None:
        super().__init__(stream, is_terminal=is_terminal)
        self._request = request
        self.answer = ""
        self.text = ""

    def begin(self, text: str) -> None:
        """Show what is waited for."""
        self._screen.begin(text, at=time.time())

    def log(self, line: str) -> None:
        """Show a line of the answer; other lines are left out."""
        found = read_answer_line(line)
        if found is None or found.request != self._request:
            return
        if found.state == "recording":
            self.begin(f"recording {found.text}")
        elif found.state == "verdict":
            self.close()
            self._screen.line(found.text)
        else:
            self.close()
            self.answer, self.text = found.state, found.text

    def state(self, state: JobState) -> None:
        """Show a state, if the job does not train in it."""
        if state.stage != "running":
            super().state(state)


def _answer(api: KubernetesApi, context: ClusterContext, name: str, request: ProfileRequest) -> ExitStatus:
    watch = watch_of(api, context, name)
    view = AnswerView(sys.stdout, is_terminal=sys.stdout.isatty(), request=request.id)
    log = DriverLog(api, watch)
    view.say(f"job {name} is asked to profile {request.steps} of its next steps: request {request.id}")
    view.begin("waiting until its pods see the request, within about a minute")
    log.start()
    try:
        state = follow(watch, log, view, until=lambda _: view.answer != "")
    finally:
        view.close()
    if view.answer == "refused":
        raise RefusedError(
            f"job {name} refuses the request: {view.text}",
            remedy=f"its log shows where it is: {context.hint('logs', name)}",
        )
    if not view.answer:
        raise RefusedError(
            f"job {name} is {state.stage}: it ended before {request.steps} of its steps were profiled",
            remedy=_from_a_step_on(context, name),
        )
    print(_how_to_copy(context, view.text))
    return ExitStatus.DONE


def _require_role(api: KubernetesApi, context: ClusterContext) -> None:
    team = context.team
    require(
        api,
        _PERMISSIONS,
        namespace=team.namespace,
        role=SUBMITTER_ROLE,
        title=f"a profile of a job of team {team.name}",
        remedy=f"members of the team have the role: add yours to `roles` of team {team.name} in "
        f"infra/environments/{context.env}.yaml",
    )


def _make(api: KubernetesApi, context: ClusterContext, job: Manifest, request: ProfileRequest) -> Manifest:
    """Create the ConfigMap with the request."""
    metadata, team = job["metadata"], context.team
    wanted = requests_map(
        metadata["name"],
        namespace=team.namespace,
        labels={**labels("ray", version=context.target.release.platform, team=team.name), JOB_LABEL: metadata["name"]},
        owner=owner_reference(job),
        files={PROFILE_REQUEST: request.dump()},
    )
    try:
        return api.create(wanted)
    except ApiError as error:
        if error.code != 409:
            raise
    pending = api.read(wanted)
    if pending is not None and any(
        one["uid"] == metadata["uid"] for one in pending["metadata"].get("ownerReferences", ())
    ):
        raise RefusedError(
            f"job {metadata['name']} has a request for a profile already, since {pending['metadata']['creationTimestamp']}",
            remedy="wait for its answer; if nobody waits for it any more, withdraw it: "
            f"kubectl -n {team.namespace} delete configmap {wanted['metadata']['name']}",
        )
    if pending is not None:  # of an earlier job of this name, and not yet collected as garbage
        api.delete(pending)
    return api.create(wanted)


def _check_kind(job: Manifest, context: ClusterContext, request: ProfileRequest) -> None:
    """Refuse a job whose ranks would not see the request, or could not meet it."""
    name = job["metadata"]["name"]
    instead = "use torch.profiler in its code"
    if name.startswith(SESSION_PREFIX):
        raise SettingsError(f"{name} is a session, which has no run of the trainer to profile", remedy=instead)
    if is_command_job(job):
        raise SettingsError(f"job {name} runs a command of its own, which has no trainer to profile", remedy=instead)
    if is_search(job):
        raise SettingsError(
            f"job {name} is a search, and a profile is of one run",
            remedy=f"train its settings with a profile: make profile ENV={context.env} TEAM={context.team.name} CONFIG=…",
        )
    if not takes_requests(job):
        raise SettingsError(
            f"job {name} mounts no requests: an earlier release submitted it, or it is a benchmark",
            remedy=f"once it has ended, {_from_a_step_on(context, name)}",
        )
    if request.memory and not job_manifest.gpus(job):
        raise SettingsError(
            f"--memory: job {name} runs on CPUs, and a memory snapshot is of a GPU", remedy="leave it out"
        )


def _check_state(state: JobState, name: str, context: ClusterContext) -> None:
    """Refuse a job that does not train now."""
    if state.stage == "running":
        return
    if state.is_over:
        raise RefusedError(
            f"job {name} is {state.stage}, so there is no step to profile", remedy=_from_a_step_on(context, name)
        )
    raise RefusedError(
        f"job {name} is {state.stage}: only a job that runs sees a request",
        remedy=f"ask again when it runs: {context.hint('logs', name)} follows it",
    )


def _from_a_step_on(context: ClusterContext, name: str) -> str:
    return f"profile it from a step on: {context.hint('resume', name)} SET=profile.start_step=N"


def _how_to_copy(context: ClusterContext, folder: str) -> str:
    """How to get the traces, which are on the file system of the team's runs."""
    team = context.team
    return (
        f"  copy them  kubectl -n {team.namespace} cp POD:{folder} FOLDER, where POD is one of a session: "
        f"make cluster ENV={context.env} TEAM={team.name} NAME=notes GPUS=0"
    )
