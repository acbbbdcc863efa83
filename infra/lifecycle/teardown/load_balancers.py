"""Deletes what has a load balancer in AWS, while the controller that would delete the load balancer still runs.

A load balancer that outlives its cluster is billed, and its network interfaces keep the subnets.
"""

from __future__ import annotations

from collections.abc import Callable

from infra.kube.api import KubernetesApi
from infra.lifecycle.teardown.deletion import command_that_frees, delete_all, lines_of
from infra.lifecycle.teardown.namespaces import Within, is_within
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest

_SECONDS = 600.0
"""AWS takes minutes to delete a Network Load Balancer."""


def find_exposed(api: KubernetesApi, *, within: Within = None) -> list[Manifest]:
    """Services of type LoadBalancer, Ingresses and Gateways, of all namespaces or of some."""
    services = [one for one in api.items("v1", "Service") if one["spec"].get("type") == "LoadBalancer"]
    ingresses = api.items("networking.k8s.io/v1", "Ingress")
    found = [*ingresses, *api.items_if_served("gateway.networking.k8s.io/v1", "Gateway"), *services]
    return [one for one in found if is_within(one["metadata"]["namespace"], within)]


def delete_exposed(
    api: KubernetesApi, *, say: Callable[[str], None], seconds: float = _SECONDS, within: Within = None
) -> None:
    """Delete them, and wait until their controllers have deleted the load balancers.

    Args:
        api: the cluster's API server.
        say: prints a line of progress.
        seconds: how long to wait.
        within: where to delete.

    Raises:
        RefusedError: some are left; names each with its finalizers.
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    left = delete_all(
        api, lambda: find_exposed(api, within=within), what="Services, Ingresses and Gateways", say=say, seconds=seconds
    )
    if left:
        raise RefusedError(
            f"{len(left)} objects with a load balancer are still there {seconds:.0f} s after their deletion; the controller that "
            f"removes their finalizers does not:{lines_of(left)}",
            remedy="look at the log of the controller, e.g. the AWS Load Balancer Controller, and repeat the command. If it is gone "
            f"for good, delete the load balancers in AWS, then remove the finalizers: {command_that_frees(left[0])}",
        )
