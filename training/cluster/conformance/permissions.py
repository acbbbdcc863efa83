"""The permissions of the caller that the chosen checks need: asked for before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from training.cluster.conformance import catalogue
from training.cluster.conformance.runner import Runner
from training.cluster.context import ClusterContext

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


@dataclass(frozen=True, kw_only=True)
class Need:
    """A permission, and who has it.

    Attributes:
        verb: of the API.
        resource: with its API group, e.g. `rayjobs.ray.io`, and its subresource, e.g. `pods/log`.
        namespace: where; None for the whole cluster.
    """

    verb: str
    resource: str
    namespace: str | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """The permission as the API names it."""
        name, _, group = self.resource.partition(".")
        resource, _, subresource = name.partition("/")
        optional = {"subresource": subresource, "namespace": self.namespace, "group": group}
        return {"verb": self.verb, "resource": resource, **{key: value for key, value in optional.items() if value}}

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else " in the cluster"
        return f"{self.verb} {self.resource}{where}"


def require(api: KubernetesApi, context: ClusterContext, runner: Runner, *, has_prometheus_url: bool) -> None:
    """Refuse a caller who lacks a permission of a chosen check.

    Args:
        api: the cluster.
        context: stack and team.
        runner: has the chosen checks.
        has_prometheus_url: Prometheus is asked at an address that the caller names, and not through the cluster.

    Raises:
        RefusedError: names each missing permission, and who has them.
    """
    needs = [*_needs(context, runner), *(() if has_prometheus_url else _needs_of_prometheus(runner))]
    missing = [str(need) for need in dict.fromkeys(needs) if not _is_allowed(api, need)]
    if missing:
        team = context.team.name
        raise RefusedError(
            f"the checks need permissions that you do not have: {'; '.join(missing)}",
            remedy=f"run them as an administrator of the cluster (cluster.admin_roles of {context.env}); a member of team "
            f"{team} may run those that need only its role submitter: "
            "--only queue --only network --only fabric --only training --only tracking",
        )


def _needs(context: ClusterContext, runner: Runner) -> Iterator[Need]:
    namespace = context.team.namespace
    if runner.wants(catalogue.NODE_GPUS, catalogue.NODE_EFA, catalogue.NODE_DRIVER):
        yield Need(verb="list", resource="nodes")
    pods = (catalogue.POD_ADMITTED, catalogue.POD_PRIVILEGED, catalogue.POD_HOST_PATH, catalogue.POD_NFS)
    if runner.wants(*pods, catalogue.POD_OVERSIZE):
        yield Need(verb="create", resource="pods", namespace=namespace)
    if runner.wants(catalogue.FOREIGN_NAMESPACE):
        yield Need(verb="create", resource="subjectaccessreviews.authorization.k8s.io")
    if runner.wants(catalogue.VOLUMES):
        yield Need(verb="get", resource="persistentvolumes")
        for team in context.target.outputs.teams:
            yield Need(verb="get", resource="persistentvolumeclaims", namespace=team.namespace)
    jobs = [one for one in catalogue.CHECKS if one.needs_job]
    if runner.wants(catalogue.JOB_LINGERS, *jobs):
        yield Need(verb="create", resource="rayjobs.ray.io", namespace=namespace)
    if runner.wants(*jobs):
        yield Need(verb="create", resource="configmaps", namespace=namespace)
        yield Need(verb="delete", resource="rayjobs.ray.io", namespace=namespace)
        yield Need(verb="list", resource="pods", namespace=namespace)
        yield Need(verb="get", resource="pods/log", namespace=namespace)
        yield Need(verb="list", resource="workloads.kueue.x-k8s.io", namespace=namespace)


def _needs_of_prometheus(runner: Runner) -> Iterator[Need]:
    """To find Prometheus, or what stands in for it in a sandbox, and to forward its port."""
    if runner.wants(catalogue.RULES, catalogue.ALERTS, catalogue.METRICS):
        for verb, resource in (("get", "services"), ("list", "pods"), ("create", "pods/portforward")):
            yield Need(verb=verb, resource=resource, namespace=MONITORING_NAMESPACE)


def _is_allowed(api: KubernetesApi, need: Need) -> bool:
    review: Manifest = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": need.attributes},
    }
    return bool(api.create(review)["status"]["allowed"])
