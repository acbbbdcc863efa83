"""Finds a session and its pods, and connects to them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.spec.cluster_names import SESSION_PREFIX
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.rayjob import ENDED
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster.context import ClusterContext
from training.cluster.kubectl import Kubectl, kubectl_for
from training.cluster.objects import POD, RAY_JOB
from training.cluster.steps import connection_of, context_with, contexts_of
from training.cluster.waiting import is_ready
from training.options.cluster import ClusterOptions
from training.options.sessions import SessionNameOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session on a cluster.

    Attributes:
        context: its stack and team.
        api: the API server.
        name: name of its RayJob.
    """

    context: ClusterContext
    api: KubernetesApi
    name: str

    def job(self) -> Manifest | None:
        """Its RayJob, or None."""
        return self.api.read(api_object(*RAY_JOB, self.name, namespace=self.context.team.namespace))

    def is_over(self) -> bool:
        """Whether it has ended or does not exist."""
        job = self.job()
        return job is None or has_ended(job)

    def pod(self, kind: str) -> str:
        """The first ready pod of that kind, in order of their names.

        Raises:
            RefusedError: there is none.
        """
        labels = f"{JOB_LABEL}={self.name},ray.io/node-type={kind}"
        pods = self.api.items(*POD, namespace=self.context.team.namespace, labels=labels)
        ready = sorted(str(pod["metadata"]["name"]) for pod in pods if is_ready(pod))
        if not ready:
            raise RefusedError(
                f"session {self.name} has no ready {kind} pod",
                remedy=f"follow it: {self.context.hint('logs', self.name)}",
            )
        return ready[0]


def kubectl_of(context: ClusterContext, arguments: ClusterOptions) -> Kubectl:
    """Kubectl in a team's namespace; raises like `kubectl_for`."""
    return kubectl_for(
        context.target.outputs,
        namespace=context.team.namespace,
        kubeconfig=arguments.kubeconfig,
        environment=os.environ,
    )


def ray_token(kubectl: Kubectl, pod: str) -> str:
    """The token of a Ray cluster, from its head; members cannot read its Secret.

    Raises:
        RefusedError: the connection is refused; carries the API server's words.
    """
    return kubectl.output("exec", pod, "--container=ray-head", "--", "printenv", "RAY_AUTH_TOKEN").strip()


def session_name(name: str) -> str:
    """The name of a session's RayJob, from the name that a user typed."""
    return name if name.startswith(SESSION_PREFIX) else f"{SESSION_PREFIX}{name}"


def find_session(arguments: SessionNameOptions) -> Session:
    """The session of that name; without a name the team's newest that runs.

    Raises:
        RefusedError: there is no such session.
    """
    contexts = contexts_of(arguments)
    api = connection_of(contexts[0], arguments)

    def names(one: ClusterContext) -> list[str]:
        jobs = api.items(*RAY_JOB, namespace=one.team.namespace)
        return [str(job["metadata"]["name"]) for job in jobs if arguments.run or _is_running_session(job)]

    context = context_with(contexts, "session", names, name=arguments.run and session_name(arguments.run))
    remedy = f"make jobs ENV={context.env} lists the jobs; start a session: make cluster ENV={context.env}"
    if arguments.run is None:
        newest = newest_session(api, context)
        if newest is None:
            raise RefusedError(f"team {context.team.name} has no running session", remedy=remedy)
        return newest
    found = Session(context=context, api=api, name=session_name(arguments.run))
    if found.job() is None:
        raise RefusedError(f"{found.name}: no such session of team {context.team.name}", remedy=remedy)
    return found


def newest_session(api: KubernetesApi, context: ClusterContext) -> Session | None:
    """The session of a team that was created last, of those that run."""
    jobs = [job for job in api.items(*RAY_JOB, namespace=context.team.namespace) if _is_running_session(job)]
    newest = max(jobs, key=lambda one: str(one["metadata"]["creationTimestamp"]), default=None)
    return None if newest is None else Session(context=context, api=api, name=str(newest["metadata"]["name"]))


def has_ended(job: Manifest) -> bool:
    """Whether KubeRay has finished a RayJob."""
    return (job.get("status") or {}).get("jobDeploymentStatus") in ENDED


def _is_running_session(job: Manifest) -> bool:
    status = job.get("status") or {}
    return job["metadata"]["name"].startswith(SESSION_PREFIX) and status.get("jobDeploymentStatus") == "Running"
