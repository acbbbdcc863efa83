"""User data of a node, and the tags that describe a group without nodes to the autoscaler."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from infra.spec.manifest_yaml import write_document
from infra.spec.node_group import NodeGroup
from infra.spec.sharing import mig_script

TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template"
"""Prefix of the tags from which the autoscaler builds its template of a node (cluster-autoscaler, AWS provider, "Scaling from 0")."""

_BOUNDARY = "==NODECONFIG=="
_DROP_IN = "/etc/eks/nodeadm.d/90-max-pods.yaml"

_OPEN_FILES = {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576}
"""nodeadm's default, which a list of limits replaces (amazon-eks-ami, base-runtime-spec.json)."""

_ANY_AMOUNT = 2**50
"""More than any node has. Unlimited would be 2^64 - 1, which the JSON numbers of nodeadm's merge round to an invalid value."""

_MIG_PROGRAM = "/usr/local/sbin/partition-gpus"
_MIG_UNIT = f"""[Unit]
Description=Partition the GPUs into MIG slices
Wants=nvidia-kmod-load.service
After=nvidia-kmod-load.service nvidia-persistenced.service
Before=nodeadm-run.service kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={_MIG_PROGRAM}
[Install]
WantedBy=multi-user.target
"""
"""Runs at every boot, and after the driver has been loaded (amazon-eks-ami, nvidia-kmod-load.service)."""


def user_data(group: NodeGroup) -> str:
    """The user data of an AL2023 node, base64: a MIME document, to which EKS adds a part with the cluster's address.

    cloud-init runs the shell scripts once in an instance's life, before `nodeadm-run.service` starts the kubelet.
    """
    spec = _node_spec(group)
    parts = [_part("application/node.eks.aws", _node_config(spec))] if spec else []
    parts += [_part("text/x-shellscript", script) for script in _scripts(group)]
    head = ("MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"', "")
    document = "\n".join((*head, *parts, f"--{_BOUNDARY}--", ""))
    return base64.b64encode(document.encode()).decode()


def _node_spec(group: NodeGroup) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if group.plan.nvme_raid0:
        # The instance store disks become one RAID 0 for containerd, the kubelet and pod logs.
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if group.plan.efa_count:
        # EFA registers memory, and a process without CAP_IPC_LOCK, as in our pods, may lock RLIMIT_MEMLOCK bytes. containerd's
        # unit sets no limit, so it would be systemd's default of 8 MiB; EFA's own check asks for 16 GiB.
        locked = {"type": "RLIMIT_MEMLOCK", "soft": _ANY_AMOUNT, "hard": _ANY_AMOUNT}
        spec["containerd"] = {"baseRuntimeSpec": {"process": {"rlimits": [_OPEN_FILES, locked]}}}
    if group.pulls_in_parallel:
        spec["featureGates"] = {"FastImagePull": True}
    return spec


def _scripts(group: NodeGroup) -> Iterator[str]:
    """The node's shell scripts.

    EKS overrides the maxPods of user data for its own AMIs: with prefix delegation by 110, or 250 from 30 vCPUs on (EKS user
    guide, "Choose an optimal Amazon EC2 node instance type"). nodeadm merges the files of its folder after user data
    (amazon-eks-ami, nodeadm, "Overriding configuration with drop-in files").
    """
    yield "\n".join(("#!/bin/bash", "set -eu", _write(_DROP_IN, _node_config(_max_pods(group)))))
    profile = group.sharing.mig_profile
    if profile:
        program = mig_script(profile, slices=group.devices_per_gpu)
        yield "\n".join(
            (
                "#!/bin/bash",
                "set -eu",
                _write(_MIG_PROGRAM, program),
                f"chmod 0755 {_MIG_PROGRAM}",
                _write("/etc/systemd/system/mig.service", _MIG_UNIT),
                "systemctl daemon-reload",
                "systemctl enable --now mig.service",
                "",
            )
        )


def _max_pods(group: NodeGroup) -> Mapping[str, Any]:
    return {"kubelet": {"config": {"maxPods": group.max_pods}}}


def _node_config(spec: Mapping[str, Any]) -> str:
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": dict(spec)}
    return write_document(document)


def _write(path: str, text: str) -> str:
    """The shell command that writes a file."""
    return f"cat > {path} <<'END_OF_FILE'\n{text}END_OF_FILE\n"


def _part(content_type: str, text: str) -> str:
    return "\n".join((f"--{_BOUNDARY}", f"Content-Type: {content_type}", "", text))


def template_tags(group: NodeGroup) -> dict[str, str]:
    """Tags of the autoscaling group from which the autoscaler knows what a node would have while there is none.

    EFA in particular: without its tag a pod that asks for EFA fits no node it could start, and the group stays at zero.
    Start-up taints are left out: they go when the node is ready.
    """
    return {
        **{f"{TEMPLATE_TAG}/label/{key}": value for key, value in group.node_labels.items()},
        **{f"{TEMPLATE_TAG}/taint/{taint.key}": f"{taint.value}:{taint.effect}" for taint in group.taints},
        **{f"{TEMPLATE_TAG}/resources/{name}": str(amount) for name, amount in group.extended_resources.items()},
    }
