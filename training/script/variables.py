"""The environment variables with which a command starts on a node.

torchrun takes the defaults of its options from the variables PET_<option> (torch/distributed/argparse_util.py and run.py, 2.15): so
`torchrun train.py` needs no option on any number of nodes. Its default rendezvous, `static`, takes the number of the node and the address
of node 0 from them. Kubeflow Trainer sets the same variables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training.code.import_path import required_packages
from training.errors import PreflightError

OUTPUT_VARIABLE = "RTP_OUTPUT_FOLDER"
"""Environment variable with the folder for a command's own files: on a cluster on the shared file system, the same for all nodes."""


@dataclass(frozen=True, kw_only=True)
class NodePlace:
    """A node among the nodes of a command.

    Attributes:
        rank: its number, from 0.
        nodes: number of nodes.
        processes: processes that torchrun starts on each node.
        cpus: cores of a node; None leaves the number of threads to the programs.
        master_address: address of node 0.
        master_port: a free port there.
    """

    rank: int
    nodes: int
    processes: int
    cpus: int | None
    master_address: str
    master_port: int

    def variables(self) -> dict[str, str]:
        """The variables of torchrun, and the same numbers under their common names."""
        found = {
            "PET_NNODES": self.nodes,
            "PET_NPROC_PER_NODE": self.processes,
            "PET_NODE_RANK": self.rank,
            "PET_MASTER_ADDR": self.master_address,
            "PET_MASTER_PORT": self.master_port,
            "NNODES": self.nodes,
            "NODE_RANK": self.rank,
            "MASTER_ADDR": self.master_address,
            "MASTER_PORT": self.master_port,
        }
        if self.cpus is not None:
            # Ray sets it to all cores of the actor, for each of the processes.
            found["OMP_NUM_THREADS"] = max(1, self.cpus // self.processes)
        return {name: str(value) for name, value in found.items()}


def environment_of(base: Mapping[str, str], place: NodePlace, *, output: Path, code: Path | None) -> dict[str, str]:
    """All environment variables of the command on a node.

    Args:
        base: those of the process that starts it.
        place: the node.
        output: folder for the command's own files.
        code: folder to put on Python's import path, after what is there, and after it the packages that it requires.

    Raises:
        PlatformError: the packages cannot be installed, or this image lacks them.
    """
    packages = [] if code is None else required_packages(code)
    scripts = [f"{one}/bin" for one in packages]
    programs = os.pathsep.join([str(Path(sys.executable).parent), *scripts, *filter(None, [base.get("PATH")])])
    imports = [*filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    if code is not None and str(code) not in imports:
        imports.append(str(code))
    imports += [one for one in packages if one not in imports]
    path = {"PYTHONPATH": os.pathsep.join(imports)} if imports else {}
    return {
        **base,
        **path,
        "PATH": programs,  # torchrun and python of this environment, which nobody has to activate
        "PYTHONUNBUFFERED": base.get("PYTHONUNBUFFERED", "1"),
        OUTPUT_VARIABLE: str(output),
        **place.variables(),
    }


def make_output_folder(folder: Path) -> None:
    """Make the folder for a command's own files.

    Raises:
        PreflightError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(
            f"{folder}: the folder for the command's files cannot be made: {error.strerror}"
        ) from error
