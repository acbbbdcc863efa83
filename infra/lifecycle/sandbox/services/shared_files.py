"""A stand-in for EFS and FSx for Lustre: folders of this machine behind the environment's own volumes and claims.

Every real node sees the same folders. As an access point does, a folder has the owner and mode that the stack's program gives it.
Unlike an access point, it does not change the user of what a pod writes: pods of the platform run as that user anyway.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from infra.lifecycle.sandbox.recorded import AccessPoint
from infra.lifecycle.sandbox.services.facts import Services
from infra.spec.manifest import Manifest

_READ_ONLY = "ro"
"""Mount option of the volumes of datasets."""

_WHOLE = AccessPoint(path="/", uid=0, gid=0, mode=0o755)
"""A file system without an access point."""


def shared_volume(volume: Manifest, points: Mapping[str, AccessPoint], services: Services) -> Manifest:
    """A volume of a shared file system with a folder in its place, which is made; everything else of it stays.

    Args:
        volume: a PersistentVolume.
        points: the stack's access points by ID.
        services: the sandbox's services.

    Returns:
        the volume; unchanged if it is not of a shared file system.
    """
    source = volume["spec"].get("csi")
    if source is None:
        return volume
    file_system, _, point = source["volumeHandle"].partition("::")
    found = points.get(point, _WHOLE)
    place = f"{file_system}{found.path}".rstrip("/")
    _make(Path(services.shared), place, found)
    # Host paths have no mount options, and the nodes have the same folders twice.
    options = volume["spec"].get("mountOptions", ())
    root = services.read_only if _READ_ONLY in options else services.shared
    spec = {key: value for key, value in volume["spec"].items() if key not in {"csi", "mountOptions"}}
    return {**volume, "spec": {**spec, "hostPath": {"path": f"{root}/{place}", "type": "Directory"}}}


def _make(root: Path, place: str, point: AccessPoint) -> None:
    """Make a folder as an access point does at its first use; one that exists keeps its owner and mode."""
    folder = root / place
    if folder.exists():
        return
    folder.mkdir(parents=True)
    os.chown(folder, point.uid, point.gid)
    folder.chmod(point.mode)
