"""cgroups of a sandbox: made, joined by its processes, emptied and removed; versions 1 and 2."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.spec.errors import PlatformError

_REMOVE_SECONDS = 30.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup hierarchy.

    Attributes:
        mount: where it is mounted.
        options: mount options that select it in version 1, e.g. `cpu,cpuacct`; None in version 2.
    """

    mount: Path
    options: str | None

    @property
    def controllers(self) -> tuple[str, ...]:
        """Controllers of a hierarchy of version 1."""
        return () if self.options is None else tuple(self.options.split(","))


def hierarchies() -> tuple[Hierarchy, ...]:
    """All mounted hierarchies, each once."""
    found: dict[str | None, Hierarchy] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found.setdefault(None, Hierarchy(_mount_point(before), None))
        elif kind == "cgroup":
            selected = _selected(options)
            found.setdefault(selected, Hierarchy(_mount_point(before), selected))
    return tuple(found.values())


def is_version_2(found: tuple[Hierarchy, ...]) -> bool:
    """Whether version 2 has the controllers: there is no other; beside version 1 it has none."""
    return all(hierarchy.options is None for hierarchy in found)


def make(name: str) -> None:
    """Make a cgroup in every hierarchy, with its parents and all controllers that these have.

    Args:
        name: path below the roots, e.g. `rtp-0123abcd/a10g-0`.
    """
    for hierarchy in hierarchies():
        folder = hierarchy.mount
        for part in Path(name).parts:
            enable_controllers(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
            _inherit_cpuset(folder)


def join(name: str) -> None:
    """Move this process into a cgroup in every hierarchy."""
    for hierarchy in hierarchies():
        (hierarchy.mount / name / "cgroup.procs").write_text("0", encoding="utf-8")


def remove(name: str) -> bool:
    """Kill all processes in a cgroup and below, and remove it from every hierarchy; whether there was one.

    Raises:
        PlatformError: it was not empty in time.
    """
    roots = [root for hierarchy in hierarchies() if (root := hierarchy.mount / name).is_dir()]
    deadline = time.monotonic() + _REMOVE_SECONDS
    while left := [root for root in roots if not _is_removed(root)]:
        if time.monotonic() > deadline:
            raise PlatformError(
                f"cgroup {left[0]} still has processes after {_REMOVE_SECONDS:.0f} s: {sorted(_members(left[0]))}",
                remedy="end them, then run make sandbox-down again",
            )
        for process in {process for root in left for process in _members(root)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    return bool(roots)


def enable_controllers(folder: Path) -> None:
    """Make the controllers of a cgroup of version 2 available to its children, each that can be."""
    available = folder / "cgroup.controllers"
    if available.is_file():
        for controller in available.read_text(encoding="utf-8").split():
            with contextlib.suppress(OSError):  # e.g. cpu while a real-time process runs
                (folder / "cgroup.subtree_control").write_text(f"+{controller}", encoding="utf-8")


def _is_removed(root: Path) -> bool:
    """Remove a cgroup and its children; False while a process is in one."""
    if not root.is_dir():
        return True
    folders = [Path(folder) for folder, _, _ in os.walk(root, topdown=False)]
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
    return not root.is_dir()


def _members(root: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(root):
        with contextlib.suppress(OSError):
            yield from map(int, (Path(folder) / "cgroup.procs").read_text(encoding="utf-8").split())


def _inherit_cpuset(folder: Path) -> None:
    """A new cpuset of version 1 has no CPUs, and takes no process before it has some."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        if (folder / file).is_file() and (folder / "cgroup.clone_children").is_file():
            (folder / file).write_text((folder.parent / file).read_text(encoding="utf-8"), encoding="utf-8")


def _mount_point(fields: str) -> Path:
    return Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields.split(" ")[4]))


def _selected(options: str) -> str:
    """The super-block options that name the hierarchy, e.g. `cpu,cpuacct` of `rw,cpu,cpuacct`, or `name=systemd`."""
    known = {line.split("\t")[0] for line in Path("/proc/cgroups").read_text(encoding="utf-8").splitlines()[1:]}
    return ",".join(word for word in options.split(",") if word in known or word.startswith("name="))
