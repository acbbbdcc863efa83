"""Takes what is on a cluster that is given up out of its stack's state: nobody can delete it there, and it goes with the cluster.

Pulumi's Kubernetes provider drops objects of a cluster that does not answer only where the stack has said so before, and never drops a
Helm release (pulumi-kubernetes, provider.go and helm_release.go, `Delete`): a destroy would end at the charts.
"""

from __future__ import annotations

from collections.abc import Callable

from infra.lifecycle.stack.state import export_state, resources_in
from infra.spec.stack_outputs import NoStackError, ask_pulumi

_ON_CLUSTER = ("kubernetes:", "rtp:kubernetes:")
"""Beginnings of the types of objects and charts, and of the components that group them."""


def forget_cluster(environment: str, *, say: Callable[[str], None]) -> None:
    """Remove every resource on the cluster from the state; Pulumi refuses if another resource depends on one of them.

    Args:
        environment: name of the environment and the stack.
        say: prints a line.

    Raises:
        PlatformError: pulumi failed; carries its message.
    """
    try:
        resources = resources_in(export_state(environment))
    except NoStackError:
        return
    urns = dict.fromkeys(str(one["urn"]) for one in resources if str(one["type"]).startswith(_ON_CLUSTER))
    if urns:
        say(f"taking {len(urns)} resource{'s' * (len(urns) != 1)} on the cluster out of the stack's state")
        ask_pulumi(environment, "state", "delete", *urns, "--yes")
