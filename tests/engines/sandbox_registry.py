"""The registry of a sandbox with real nodes, on loopback, without a control plane."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infra.lifecycle.sandbox.images.registry import start_registry
from infra.lifecycle.sandbox.modules import REGISTRY
from infra.lifecycle.sandbox.processes import Process
from infra.lifecycle.sandbox.programs import find_registry
from infra.spec.errors import RefusedError
from tests.engines.engines_build import await_build
from tests.engines.oci_registry import NAME
from tests.engines.ports import free_port
from tests.engines.report_table import ran, skipped


@dataclass
class Programs:
    """Starts programs as a control plane does, and keeps their files in a folder."""

    folder: Path
    running: list[Process] = field(default_factory=list)

    def run(self, name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> Process:
        """See `ControlPlane.run`."""
        self.running.append(Process(command, log=self.folder / f"{name}.log", environment=environment))
        return self.running[-1]


def registry_program() -> Path:
    """Path of the registry; skips without it."""
    await_build(os.environ, REGISTRY)
    try:
        return find_registry(os.environ)
    except RefusedError:
        skipped(NAME, "not built", "make engines")


@contextmanager
def sandbox_registry(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """Run the registry, with its images in a folder; gives address and port."""
    program = registry_program()
    folder.mkdir(parents=True, exist_ok=True)
    programs = Programs(folder)
    try:
        host = start_registry(
            programs, program, address="127.0.0.1", storage=folder / "images", port=port or free_port()
        )
        ran(NAME)
        yield host
    finally:
        for process in programs.running:
            process.stop()
