"""Brings a job to the cluster, all of it or nothing."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from infra.spec.manifest import Manifest, annotated
from infra.spec.node_labels import LABEL_PREFIX
from training.cluster import places
from training.cluster.api import Api
from training.cluster.errors import ApiError, ClusterRefusedError
from training.cluster.state import Observation, judge

_SUBMISSION = f"{LABEL_PREFIX}/submission"
"""Annotation that makes two submissions of one name conflict: each is a field manager of its own and gives it a value of
its own, which server-side apply refuses. The same submission, sent again after a lost answer, changes nothing."""


def submit(api: Api, manifests: Sequence[Manifest], *, env: str) -> Manifest:
    """Create a job and what belongs to it, which is deleted with it.

    The RayJob goes first, because its name is what may be taken. Its pods wait for the settings if they are faster.

    Args:
        api: the cluster.
        manifests: one RayJob, and the rest.
        env: name of the environment, for the message.

    Returns:
        the RayJob as the API server has it.

    Raises:
        ClusterRefusedError: the name is taken, or the cluster refuses an object; nothing is left of the others then.
    """
    (job,) = [one for one in manifests if one["kind"] == "RayJob"]
    others = [one for one in manifests if one is not job]
    taken = api.read(places.path_of(job))
    if taken is not None:
        raise _name_taken(taken, env=env)
    submission = uuid.uuid4().hex
    manager = f"ray-train-platform-{submission[:12]}"
    try:
        made = api.apply(places.path_of(job), annotated(job, _SUBMISSION, submission), manager=manager)
    except ApiError as error:
        if error.code == 409:
            raise _name_taken(job, env=env) from error
        raise
    try:
        for other in others:
            api.apply(places.path_of(other), _owned(other, made), manager=manager, takes_over=True)
    except BaseException:
        api.delete(places.path_of(job), uid=made["metadata"]["uid"])
        raise
    return made


def _name_taken(job: Manifest, *, env: str) -> ClusterRefusedError:
    metadata = job["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    state = judge(Observation(job=job)) if "uid" in metadata else None
    if state is not None and state.is_over:
        instead = f"go on with it: make resume ENV={env} JOB={name}, or free the name: kubectl -n {namespace} delete rayjob {name}"
    else:
        instead = f"or look at it: make logs ENV={env} JOB={name}"
    return ClusterRefusedError(
        f"job {name} exists in namespace {namespace} ({'being submitted' if state is None else state.stage}); "
        "a job's name is its run's, and used once",
        remedy=f"choose another NAME, {instead}",
    )


def _owned(manifest: Manifest, owner: Manifest) -> Manifest:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}
