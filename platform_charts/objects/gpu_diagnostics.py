"""DCGM's diagnostics on new GPU nodes: a DaemonSet on the nodes that the node gate labels.

Its pod needs no permission: the outcome is the exit status of an init container, which the gate reads. The gate removes the label
once the node takes jobs, and with it the pod, so a change of the DaemonSet disturbs no node in service.
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.manifest import SKIP_AWAIT, Manifest, api_object, labels
from infra.spec.node_group import NodeGroup
from infra.spec.node_labels import DIAGNOSE_LABEL
from infra.spec.release import ReleaseManifest
from infra.spec.settings.health import Diagnostics
from infra.spec.settings.stack import StackSettings
from platform_charts.container_resources import ContainerResources
from platform_charts.placement import tolerations

DIAGNOSTICS = "gpu-diagnostics"
"""Name of the DaemonSet, and of its pods in the label app.kubernetes.io/name."""

_LEVELS: dict[Diagnostics, int] = {"quick": 1, "medium": 2}
"""Run level; normally seconds and about two minutes (DCGM, reference of `dcgmi diag`)."""

_SCRIPT = """nv-hostengine -n -b 127.0.0.1 --log-level NONE -f - &
until dcgmi discovery -l >/dev/null 2>&1; do kill -0 $! || exit 1; sleep 1; done
dcgmi diag -r {level} >/tmp/report 2>&1 && exit 0
status=$?
cat /tmp/report
grep -iE 'fail|error' /tmp/report | head -c 2000 >/dev/termination-log
exit $status
"""
"""`dcgmi diag` fails with an error of a GPU or of the software (DCGM 4.6.0, dcgmi/Diag.cpp). It needs a host engine; that of the
node monitoring agent's image has no tests, and dcgm-exporter's image lacks them too."""


def is_diagnosed(group: NodeGroup, diagnostics: Diagnostics) -> bool:
    """Whether nodes of the group are diagnosed.

    With MIG they cannot be, because CUDA sees no whole GPU (DCGM 4.6.0, nvvs/src/NvidiaValidationSuite.cpp).
    """
    return diagnostics != "none" and group.sharing.mig_profile is None


_NO_CAPABILITIES: Manifest = {"drop": ["ALL"]}

_GPU_ACCESS: Manifest = {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
"""The image's NVIDIA_VISIBLE_DEVICES asks NVIDIA's runtime for every GPU. Since AL2023 AMIs of April 2026 the runtime hears only
containers with this capability (awslabs/amazon-eks-ami #2706)."""


def diagnostics_objects(
    groups: Sequence[NodeGroup], settings: StackSettings, release: ReleaseManifest
) -> tuple[Manifest, ...]:
    """The DaemonSet; nothing where no group is diagnosed.

    Args:
        groups: the node groups with GPUs.
        settings: the environment.
        release: the versions.
    """
    diagnostics = settings.gpu_health.diagnostics
    if not any(is_diagnosed(group, diagnostics) for group in groups):
        return ()
    mirror, image = settings.mirrors.images, release.images["dcgm"].reference()
    image = image if mirror is None else f"{mirror}/{image}"
    common = labels(DIAGNOSTICS, version=release.platform)
    pod = {
        "automountServiceAccountToken": False,
        "nodeSelector": {DIAGNOSE_LABEL: "true"},
        "tolerations": tolerations(),
        "terminationGracePeriodSeconds": 5,
        "initContainers": [
            _container(
                "diagnose",
                image,
                ["bash", "-c", _SCRIPT.format(level=_LEVELS[diagnostics])],
                memory="2Gi",
                capabilities=_GPU_ACCESS,
            )
        ],
        "containers": [_container("passed", image, ["sleep", "infinity"], memory="32Mi")],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
    }
    spec = {
        "selector": {"matchLabels": {"app.kubernetes.io/name": DIAGNOSTICS}},
        "template": {"metadata": {"labels": dict(common)}, "spec": pod},
    }
    # The pod of a sick node never becomes ready.
    return (
        api_object(
            "apps/v1",
            "DaemonSet",
            DIAGNOSTICS,
            namespace=GPU_NAMESPACE,
            labels=common,
            annotations=SKIP_AWAIT,
            spec=spec,
        ),
    )


def _container(
    name: str, image: str, command: list[str], *, memory: str, capabilities: Manifest = _NO_CAPABILITIES
) -> Manifest:
    return {
        "name": name,
        "image": image,
        "command": command,
        "resources": ContainerResources(cpu="10m", memory=memory, cpu_limit="4").manifest(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a folder of the container
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": capabilities is _GPU_ACCESS,  # the API server demands it for CAP_SYS_ADMIN
            "capabilities": capabilities,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
