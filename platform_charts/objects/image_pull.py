"""Pulls the trainer image onto GPU nodes: a DaemonSet whose only container is that image, asleep.

A new node pulls the image while the node gate waits for its devices and diagnostics, and a node that stays has a new release
before the first job that uses it. The sleeping container also keeps the kubelet from deleting the image when the disk fills up.
A node whose gate opens within seconds of its start gains nothing: its job waits for the same pull.
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, SKIP_AWAIT, Manifest, api_object, labels
from infra.spec.node_group import NodeGroup
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.release import ReleaseManifest
from platform_charts.container_resources import CONTAINERS
from platform_charts.placement import gpu_tolerations

IMAGE_PULL = "image-pull"
"""Name of the DaemonSet."""


def image_pull_objects(groups: Sequence[NodeGroup], release: ReleaseManifest, *, registry: str) -> tuple[Manifest, ...]:
    """The DaemonSet; nothing if no group pulls the image.

    Its pods have no priority class, so they rank below every job.

    Args:
        groups: the node groups with GPUs.
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
    """
    names = [group.name for group in groups if group.pulls_image_early]
    if not names:
        return ()
    common = labels(IMAGE_PULL, version=release.platform)
    container = {
        "name": IMAGE_PULL,
        "image": release.images["trainer"].reference(registry),
        "command": ["sleep", "infinity"],
        "resources": CONTAINERS[IMAGE_PULL].manifest(),
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": _nodes_of(names),
        "tolerations": gpu_tolerations(),
        "terminationGracePeriodSeconds": 0,
        "securityContext": dict(RESTRICTED_POD),
        "containers": [container],
    }
    spec = {
        "selector": {"matchLabels": {"app.kubernetes.io/name": IMAGE_PULL}},
        # The pods serve nobody, so all of them may be replaced at once.
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
        "template": {"metadata": {"labels": dict(common)}, "spec": pod},
    }
    return (
        api_object(
            "apps/v1",
            "DaemonSet",
            IMAGE_PULL,
            namespace=GPU_NAMESPACE,
            labels=common,
            # An image that is not pushed yet is pulled later, and a pull takes as long as it takes.
            annotations=SKIP_AWAIT,
            spec=spec,
        ),
    )


def _nodes_of(groups: Sequence[str]) -> Manifest:
    term = {"matchExpressions": [{"key": GROUP_LABEL, "operator": "In", "values": list(groups)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
