"""Ray's dashboard, in the head of a job or session."""

from __future__ import annotations

from collections.abc import Sequence

from infra.spec.cluster_names import RAY_PORTS, SESSION_PREFIX, SUBMITTER_ROLE
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from infra.spec.section import did_you_mean
from infra.spec.uis import FORWARD, Permission
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster.context import ClusterContext
from training.cluster.job_table import of_readable_teams
from training.cluster.objects import RAY_JOB
from training.cluster.session_access import has_ended, ray_token, session_name
from training.cluster.uis.permissions import require
from training.cluster.uis.ui import Stack, Ui, ready_pod
from training.errors import SettingsError

_PERMISSIONS = (*FORWARD, Permission(resource="pods/exec", verbs=("get", "create")))
"""Also a command in the head: it tells the token, whose Secret nobody of the team may read."""


def ray_ui(stack: Stack, *, team: str | None, job: str | None) -> Ui:
    """The dashboard of a job or session that runs.

    Args:
        stack: the stack.
        team: team of the job; None searches all teams.
        job: name of the job, or of a session with or without its prefix; None takes the newest session that runs, else the
            newest job: members of a team may connect to the pods of sessions only.

    Raises:
        RefusedError: nothing runs, a permission is missing, or the cluster refuses the connection.
        SettingsError: there is no such job, or several teams have it.
    """
    context, name = _find(stack, team=team, job=job)
    namespace, title = context.team.namespace, f"Ray's dashboard of {name}"
    remedy = f"add yours to `roles` of team {context.team.name} in infra/environments/{stack.env}.yaml"
    require(stack.api, _PERMISSIONS, namespace=namespace, role=SUBMITTER_ROLE, title=title, remedy=remedy)
    kubectl = stack.kubectl(namespace)

    def pod() -> str:
        labels = {JOB_LABEL: name, "ray.io/node-type": "head"}
        again = f"follow it: {context.hint('logs', name)}"
        return ready_pod(stack.api, namespace=namespace, labels=labels, title=f"the head of {name}", remedy=again)

    def authorization() -> str:
        try:
            return f"Bearer {ray_token(kubectl, pod())}"
        except RefusedError as error:
            if error.remedy or name.startswith(SESSION_PREFIX):
                raise
            rule = (
                "members of a team open the dashboards of its sessions, administrators of the cluster those of any job"
            )
            raise RefusedError(error.args[0], remedy=rule) from error

    def is_over() -> bool:
        found = stack.api.read(api_object(*RAY_JOB, name, namespace=namespace))
        return found is None or has_ended(found)

    return Ui(
        title=title,
        kubectl=kubectl,
        port=RAY_PORTS["dashboard"],
        health="/api/gcs_healthz",
        find_pod=pod,
        find_authorization=authorization,
        is_over=is_over,
    )


def _find(stack: Stack, *, team: str | None, job: str | None) -> tuple[ClusterContext, str]:
    """The team and the name of the job."""
    contexts = {context.team.name: context for context in stack.contexts(team)}
    found = of_readable_teams(
        [context.team for context in contexts.values()], lambda one: stack.api.items(*RAY_JOB, namespace=one.namespace)
    )
    chosen = {name: name_of_job for name, jobs in found.items() if (name_of_job := _chosen(jobs, job))}
    if len(chosen) == 1:
        [(owner, name)] = chosen.items()
        return contexts[owner], name
    if chosen:
        what = "jobs that run" if job is None else f"a job {job}"
        raise SettingsError(
            f"{len(chosen)} teams have {what}: {', '.join(chosen)}", remedy="choose one with TEAM=… (--team)"
        )
    owners = f"team {next(iter(found))}" if len(found) == 1 else f"teams {', '.join(found)}"
    if job is None:
        raise RefusedError(
            f"no job or session of {owners} runs", remedy=f"start a session: make cluster ENV={stack.env}"
        )
    known = [str(one["metadata"]["name"]) for jobs in found.values() for one in jobs]
    raise SettingsError(
        f"job {job}: no such job of {owners}",
        remedy=did_you_mean(job, known) or f"make jobs ENV={stack.env} lists the jobs",
    )


def _chosen(jobs: Sequence[Manifest], wanted: str | None) -> str | None:
    """The wanted job, or the newest that runs; sessions come first."""
    if wanted is not None:
        names = {str(one["metadata"]["name"]) for one in jobs}
        return next((name for name in (wanted, session_name(wanted)) if name in names), None)
    running = [one["metadata"] for one in jobs if (one.get("status") or {}).get("jobDeploymentStatus") == "Running"]
    newest = max(
        ((one["name"].startswith(SESSION_PREFIX), one["creationTimestamp"], one["name"]) for one in running),
        default=None,
    )
    return None if newest is None else str(newest[-1])
