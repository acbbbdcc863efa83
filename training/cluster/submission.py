"""Submits a job to the cluster: all of its objects or none."""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.spec.errors import RefusedError
from infra.spec.manifest import TEAM_LABEL, Manifest, annotated
from infra.spec.node_labels import LABEL_PREFIX
from training.cluster.state import Observation, state_of
from training.environment import RUN_ARGUMENTS_VARIABLE, SUBMITTED_VARIABLE

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_SUBMISSION = f"{LABEL_PREFIX}/submission"
"""Annotation that makes two submissions of one name conflict: each has its own field manager and value, which server-side
apply refuses. Retrying one submission after a lost response changes nothing."""


def submit(api: KubernetesApi, manifests: Sequence[Manifest], *, env: str) -> Manifest:
    """Create a job and the objects it owns, which are deleted with it.

    The RayJob is first, because its name may be taken. Its pods wait for the settings.

    Args:
        api: the cluster.
        manifests: one RayJob, and the objects it owns.
        env: name of the environment, for the message.

    Returns:
        the RayJob as the API server has it.

    Raises:
        RefusedError: the name is taken, or the cluster refuses an object; then none is left.
    """
    (job,) = [one for one in manifests if one["kind"] == "RayJob"]
    others = [one for one in manifests if one is not job]
    taken = api.read(job)
    if taken is not None:
        raise _name_taken(taken, env=env)
    submission, told = uuid.uuid4().hex, _told(job, submitted=time.time(), env=env)
    manager = f"ray-train-platform-{submission[:12]}"
    try:
        made = api.apply(annotated(told, _SUBMISSION, submission), manager=manager, force=False)
    except ApiError as error:
        if error.code == 409:
            raise _name_taken(job, env=env) from error
        raise
    try:
        for other in others:
            api.apply(_owned(other, made), manager=manager)
    except BaseException:
        api.delete(made, propagation="Foreground")
        raise
    return made


def _told(job: Manifest, *, submitted: float, env: str) -> Manifest:
    """A copy of the job whose driver knows when it was submitted, and so how long it waited, and how commands name it.

    A job that is rendered knows neither; those of a schedule have names of their own.
    """
    told = copy.deepcopy(dict(job))
    head = told["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    known = {SUBMITTED_VARIABLE: f"{submitted:.3f}", RUN_ARGUMENTS_VARIABLE: _arguments(job, env=env)}
    head["env"] = [*head["env"], *({"name": name, "value": value} for name, value in known.items())]
    return told


def _arguments(job: Manifest, *, env: str) -> str:
    """What names a job on the command line."""
    return f"ENV={env} JOB={job['metadata']['name']} TEAM={job['metadata']['labels'][TEAM_LABEL]}"


def _name_taken(job: Manifest, *, env: str) -> RefusedError:
    metadata = job["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    job_options = _arguments(job, env=env)
    state = state_of(Observation(job=job)) if "uid" in metadata else None
    if state is not None and state.is_over:
        instead = f"resume it: make resume {job_options}, or free the name: kubectl -n {namespace} delete rayjob {name}"
    else:
        instead = f"or follow it: make logs {job_options}"
    return RefusedError(
        f"job {name} exists in namespace {namespace} ({'being submitted' if state is None else state.stage}); "
        "a job has its run's name, which must be unique",
        remedy=f"choose another NAME, {instead}",
    )


def owner_reference(owner: Manifest) -> dict[str, str]:
    """What an object names as its owner, to be deleted with it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def _owned(manifest: Manifest, owner: Manifest) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner_reference(owner)]}}
