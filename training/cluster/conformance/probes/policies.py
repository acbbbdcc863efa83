"""Asks the API server, by dry runs and reviews, whether it refuses what it must refuse. Nothing is created."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object
from infra.spec.names import team_group
from infra.spec.node_labels import GPU_RESOURCE
from training.cluster.conformance.judges.policy import Answer

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_TOO_MANY_GPUS = "1000000"
_DAY_SECONDS = 24 * 3600
_REFUSALS = frozenset({400, 403, 422})
"""What admission answers with; anything else is an error of the request."""


def answer_to(api: KubernetesApi, manifest: Manifest) -> Answer:
    """The answer to an object, sent as a dry run.

    Raises:
        ApiError: the API server could not decide, e.g. because a webhook does not answer.
        ConnectionLostError: it does not answer.
    """
    try:
        api.create(manifest, is_dry_run=True)
    except ApiError as error:
        if error.code not in _REFUSALS:
            raise
        return Answer(refusal=str(error.args[0]))
    return Answer(refusal="")


def obedient_pod(namespace: str) -> Manifest:
    """A pod that a team may have."""
    container = {
        "name": "probe",
        "image": "conformance-probe",
        "securityContext": dict(RESTRICTED_CONTAINER),
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
    }
    spec = {"automountServiceAccountToken": False, "securityContext": dict(RESTRICTED_POD), "containers": [container]}
    return api_object("v1", "Pod", "conformance-probe", namespace=namespace, spec=spec)


def privileged_pod(namespace: str) -> Manifest:
    """A pod with all rights on its node."""
    pod = obedient_pod(namespace)
    pod["spec"]["containers"][0]["securityContext"] |= {"privileged": True, "allowPrivilegeEscalation": True}
    return pod


def host_path_pod(namespace: str) -> Manifest:
    """A pod that mounts the root of its node."""
    return _with_volume(namespace, {"hostPath": {"path": "/"}})


def nfs_pod(namespace: str, *, file_system: str, region: str) -> Manifest:
    """A pod that mounts the root of the stack's EFS file system, without an access point."""
    server = f"{file_system}.efs.{region}.amazonaws.com"
    return _with_volume(namespace, {"nfs": {"server": server, "path": "/"}})


def oversize_pod(namespace: str) -> Manifest:
    """A pod with more GPUs than any team has."""
    pod = obedient_pod(namespace)
    limits = {**pod["spec"]["containers"][0]["resources"]["limits"], GPU_RESOURCE: _TOO_MANY_GPUS}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod


def lingering_job(job: Manifest) -> Manifest:
    """The job, with a cluster that keeps its GPUs for a day after the job has ended, and Kueue has given them to others."""
    changed = copy.deepcopy(job)
    changed["spec"]["ttlSecondsAfterFinished"] = _DAY_SECONDS
    return changed


def may_submit(api: KubernetesApi, *, team: str, namespace: str) -> bool:
    """Whether the members of a team may create jobs in a namespace."""
    attributes = {"namespace": namespace, "verb": "create", "group": "ray.io", "resource": "rayjobs"}
    review: Manifest = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {"user": f"{team}-member", "groups": [team_group(team)], "resourceAttributes": attributes},
    }
    return bool(api.create(review)["status"]["allowed"])


def _with_volume(namespace: str, source: Manifest) -> Manifest:
    pod = obedient_pod(namespace)
    pod["spec"]["volumes"] = [{"name": "probe", **source}]
    return pod
