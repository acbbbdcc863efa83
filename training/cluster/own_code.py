"""A user's own code on its way to a job, and back from the ConfigMaps of a job to its next submission."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.code import LARGEST_ARCHIVE_BYTES, PackedCode, code_of, joined_parts
from training.cluster.objects import CONFIG_MAP
from training.code.archive import CodeArchive, verified_tar
from training.code.identity import CodeIdentity
from training.code.selection import describe_largest

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_MIB = 2**20


def packed(archive: CodeArchive | None) -> PackedCode | None:
    """The code of a job; None without.

    Raises:
        RefusedError: the archive is too large for ConfigMaps; names the largest files.
    """
    if archive is None:
        return None
    if len(archive.data) > LARGEST_ARCHIVE_BYTES:
        raise RefusedError(
            f"the archive of {archive.source} has {len(archive.data) / _MIB:.1f} MiB, and a job on a cluster carries at most "
            f"{LARGEST_ARCHIVE_BYTES // _MIB}" + describe_largest(archive.selection),
            remedy="let .gitignore name what is not code; put data where data.path finds it, and packages into an image: "
            "make image FROM=folder",
        )
    return PackedCode(identity=json.dumps(archive.identity.dump()), data=archive.data)


def kept_code(api: KubernetesApi, job: Manifest) -> CodeArchive | None:
    """The code that a job was submitted with; None without.

    Args:
        api: the cluster.
        job: the RayJob as the API server has it.

    Raises:
        RefusedError: ConfigMaps of its archive are gone.
        PlatformError: they were changed; with both hashes.
    """
    code = code_of(job)
    if code is None:
        return None
    namespace = job["metadata"]["namespace"]
    read = {name: api.read(api_object(*CONFIG_MAP, name, namespace=namespace)) for name in code.config_maps}
    gone = [name for name, found in read.items() if found is None]
    remedy = "give the code again: CODE=folder, or an archive that a run has kept"
    if gone:
        raise RefusedError(
            f"job {job['metadata']['name']} has lost its code, ConfigMap {', '.join(gone)} of namespace {namespace}",
            remedy=remedy,
        )
    identity = CodeIdentity.load(json.loads(code.identity))
    try:
        data = joined_parts([found for found in read.values() if found is not None])
    except ValueError as error:
        raise RefusedError(
            f"the code of job {job['metadata']['name']} cannot be read: {error}", remedy=remedy
        ) from error
    verified_tar(data, identity.sha256, name=f"ConfigMaps {', '.join(read)} of namespace {namespace}")
    return CodeArchive(identity=identity, data=data, source=Path(f"{namespace}/{code.config_maps[0]}"))
