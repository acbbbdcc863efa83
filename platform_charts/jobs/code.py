"""Code of a user's own in a job's pods, on the import path of every Python process.

A session shares a folder of the team's runs, which people edit. Any other job has one archive for its whole life: it travels in
ConfigMaps that the job owns, so that a submitter needs no rights beyond its team's, `kubectl apply` can submit it too, and it
is deleted with the job. An init container of every Ray pod verifies and unpacks it (`training.code.deliver`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from infra.spec import cluster_names
from infra.spec.manifest import Manifest

LARGEST_ARCHIVE_BYTES = 4 * 2**20
"""Largest archive of a job, in bytes: six ConfigMaps. All jobs of a team share its quota of ConfigMaps, and every kubelet
reads them from the API server."""

PART_BYTES = 768 * 2**10
"""Bytes of an archive in one ConfigMap: 1 MiB in a request, where they are base64.

A ConfigMap holds at most 1 MiB (kubernetes v1.35, pkg/apis/core/types.go, MaxSecretSize), a request to the API server at most 3
(apiserver, pkg/server/config.go, MaxRequestBodyBytes), and one to etcd 1.5 (etcd v3.6, embed/config.go, DefaultMaxRequestBytes).
"""

DELIVERY_CONTAINER = "code"
"""Init container that unpacks the archive."""

_PARTS_PATH, _DELIVERED_PATH = "/etc/training-code", "/mnt/delivered"
_FILES_FOLDER, _ARCHIVE_FOLDER, _ARCHIVE_NAME = "files", "archive", "code.tar.gz"
_IDENTITY_OPTION = "--identity="
_VOLUME, _PARTS_VOLUME = "code", "code-parts"
_VOLUME_SIZE = "256Mi"
"""Room for a code folder, which has at most 100 MiB (`training.code.rules`) before file systems round up."""

_RESOURCES = {"cpu": "1", "memory": "512Mi"}
"""Of the init container, for the archive and its content in memory. Ray's container requests no less, so that the pod and its
share of the quota do not grow; request and limit are equal, or a worker would not be of the class Guaranteed."""

_ENVIRONMENT = {
    # Ours first: Ray's own processes import from there too.
    "PYTHONPATH": f"{cluster_names.TRAINER_PATH}:{cluster_names.CODE_PATH}"
}


@dataclass(frozen=True, kw_only=True)
class PackedCode:
    """A packed code folder for a job.

    Attributes:
        identity: what the pods verify it by and the run records, as the JSON of `training.code.archive.CodeIdentity`.
        data: the archive.
    """

    identity: str
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Check the limit, which `training.cluster.own_code` explains to users."""
        assert len(self.data) <= LARGEST_ARCHIVE_BYTES, "refused before"

    def parts(self) -> list[bytes]:
        """The archive in pieces of a ConfigMap's size."""
        return [self.data[start : start + PART_BYTES] for start in range(0, len(self.data), PART_BYTES)]


class PodCode(Protocol):
    """How code comes into the pods of a job."""

    def environment(self) -> dict[str, str]:
        """Variables of Ray's container."""

    def mounts(self) -> list[Manifest]:
        """Mounts of Ray's container."""

    def volumes(self) -> list[Manifest]:
        """Volumes of the pod, beside those that every pod has."""

    def init_containers(self) -> list[Manifest]:
        """Init containers of the pod, without image and security context."""


@dataclass(frozen=True, kw_only=True)
class SharedCode:
    """The code that people write in a session.

    Attributes:
        folder: where it is, relative to the team's runs.
    """

    folder: str

    def environment(self) -> dict[str, str]:
        """See `PodCode`."""
        return dict(_ENVIRONMENT)

    def mounts(self) -> list[Manifest]:
        """See `PodCode`.

        The kubelet creates the folder before any Python process looks for it: one that misses a folder on its import path never
        looks again.
        """
        return [{"name": "runs", "mountPath": cluster_names.CODE_PATH, "subPath": self.folder}]

    def volumes(self) -> list[Manifest]:
        """See `PodCode`."""
        return []

    def init_containers(self) -> list[Manifest]:
        """See `PodCode`."""
        return []


@dataclass(frozen=True, kw_only=True)
class DeliveredCode:
    """An archive that the pods unpack.

    Attributes:
        config_maps: names of the ConfigMaps with its parts, in order.
        identity: see `PackedCode`. It is an argument in the pods' template, which nobody can change after the submission.
    """

    config_maps: Sequence[str]
    identity: str

    def environment(self) -> dict[str, str]:
        """See `PodCode`."""
        return {**_ENVIRONMENT, "RTP_CODE_FOLDER": cluster_names.CODE_PATH}

    def mounts(self) -> list[Manifest]:
        """See `PodCode`."""
        folders = {_FILES_FOLDER: cluster_names.CODE_PATH, _ARCHIVE_FOLDER: cluster_names.CODE_ARCHIVE_PATH}
        return [
            {"name": _VOLUME, "mountPath": path, "subPath": folder, "readOnly": True}
            for folder, path in folders.items()
        ]

    def volumes(self) -> list[Manifest]:
        """See `PodCode`."""
        return [
            {"name": _VOLUME, "emptyDir": {"sizeLimit": _VOLUME_SIZE}},
            parts_volume(_PARTS_VOLUME, self.config_maps),
        ]

    def init_containers(self) -> list[Manifest]:
        """See `PodCode`. KubeRay appends the one that waits for the head, which has Ray's mounts."""
        command = ["python", "-m", "training.code.deliver"]
        arguments = [
            f"{_IDENTITY_OPTION}{self.identity}",
            f"--parts={_PARTS_PATH}",
            f"--archive={_DELIVERED_PATH}/{_ARCHIVE_FOLDER}/{_ARCHIVE_NAME}",
            f"--files={_DELIVERED_PATH}/{_FILES_FOLDER}",
        ]
        return [
            {
                "name": DELIVERY_CONTAINER,
                "command": command,
                "args": arguments,
                "resources": {"requests": _RESOURCES, "limits": _RESOURCES},
                # The status of the pod then says why the archive was refused.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": _PARTS_VOLUME, "mountPath": _PARTS_PATH, "readOnly": True},
                    {"name": _VOLUME, "mountPath": _DELIVERED_PATH},
                ],
            }
        ]

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a run's command that name its archive, which it keeps."""
        return ("--code", f"{cluster_names.CODE_ARCHIVE_PATH}/{_ARCHIVE_NAME}")


def part_maps(code: PackedCode, prefix: str) -> dict[str, dict[str, str]]:
    """`binaryData` of each ConfigMap of an archive, by name: the prefix and a number.

    Args:
        code: the archive.
        prefix: beginning of the names.
    """
    return {
        f"{prefix}-{number}": {_key(number): base64.b64encode(part).decode()}
        for number, part in enumerate(code.parts())
    }


def parts_volume(name: str, config_maps: Sequence[str]) -> Manifest:
    """A volume with the parts of an archive as files, whose names sort in order."""
    return {"name": name, "projected": {"sources": [{"configMap": {"name": one}} for one in config_maps]}}


def joined_parts(config_maps: Sequence[Manifest]) -> bytes:
    """The archive in ConfigMaps as the API server has them, in order.

    Raises:
        ValueError: one has no valid data.
    """
    parts = {key: text for one in config_maps for key, text in one.get("binaryData", {}).items()}
    return b"".join(base64.b64decode(parts[key], validate=True) for key in sorted(parts))


def code_of(job: Manifest) -> DeliveredCode | None:
    """The code that was delivered to a job on the cluster; None for a job without, or a session."""
    pod = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    delivery = [one for one in pod.get("initContainers", ()) if one["name"] == DELIVERY_CONTAINER]
    if not delivery:
        return None
    (identity,) = [one for one in delivery[0]["args"] if one.startswith(_IDENTITY_OPTION)]
    (parts,) = [one for one in pod["volumes"] if one["name"] == _PARTS_VOLUME]
    return DeliveredCode(
        config_maps=tuple(one["configMap"]["name"] for one in parts["projected"]["sources"]),
        identity=identity.removeprefix(_IDENTITY_OPTION),
    )


def _key(number: int) -> str:
    return f"part-{number:02d}"
