"""The program of a `run` job: starts the command once for an admission, even if the head is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from infra.spec.errors import PlatformError
from training.code.archive import read_archive
from training.code.import_path import required_packages
from training.code.kept import keep
from training.errors import ExitStatus
from training.options.scripts import RunOnNodesOptions
from training.rundir import RunDirectory
from training.script.command_line import check_syntax
from training.script.variables import make_output_folder

RECORD_FILE = "command.json"
"""File in the job's folder: the cluster on which the command was started last, and its exit status once it has ended."""

_CLUSTER = "RAY_CLUSTER_NAME"  # set by KubeRay (ray-operator/controllers/ray/common/pod.go, setContainerEnvVars)


def run(options: RunOnNodesOptions) -> int:
    """Run the command on every node of the cluster; returns its exit status.

    Raises:
        PlatformError: it cannot start, or its head was lost and the command may not be started twice.
    """
    check_syntax(options.cmd)
    folder = RunDirectory(options.root / options.name)
    make_output_folder(folder.path)
    with folder.driving():
        record = folder.path / RECORD_FILE
        cluster = os.environ.get(_CLUSTER)
        earlier = _read(record)
        if cluster is not None and earlier.get("cluster") == cluster and not options.resumes:
            return _status_of(earlier, cluster)
        _write(record, cluster=cluster, status=None)
        if options.code is not None:
            required_packages(keep(folder.path, read_archive(options.code)).folder)  # refuses what the image lacks
        from training.script.driver import Driver  # noqa: PLC0415 - imports Ray

        try:
            status = Driver(options, folder).run()
        except KeyboardInterrupt:
            status = int(ExitStatus.INTERRUPTED)
        _write(record, cluster=cluster, status=status)
        return status


def _status_of(earlier: dict[str, Any], cluster: str) -> int:
    """The exit status of the command that another head of the same cluster has started.

    KubeRay replaces a lost head, and the submitter's next pod submits the job to it (platform_charts/jobs/head_loss.py). A run resumes
    then; a command that does not resume by itself would start from its beginning and write over its own output.
    """
    status = earlier.get("status")
    if status is None:
        raise PlatformError(
            f"the head of cluster {cluster} was lost while the command ran, and the command with it",
            remedy="make resume starts it again; RESTARTS=1 lets a command that resumes by itself start again without asking",
        )
    print(f"the command has ended already, with status {status}")
    return int(status)


def _read(record: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found


def _write(record: Path, **fields: object) -> None:
    partial = record.with_suffix(".partial")
    partial.write_text(json.dumps(fields), encoding="utf-8")
    partial.replace(record)
