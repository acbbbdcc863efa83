"""The file system of a namespace: private folders and files in place of this machine's, and its own cgroups, sysfs and /run."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.lifecycle.sandbox.node.cgroups import Hierarchy, enable_controllers, is_version_2

_BIND, _RECURSIVE, _PRIVATE, _SHARED = 0x1000, 0x4000, 1 << 18, 1 << 20
_NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 0x2, 0x4, 0x8
"""Flags of mount(2)."""

_SEALED = _NO_SUID | _NO_DEVICES | _NO_PROGRAMS

_RUN = Path("/run")
_SYSFS = Path("/sys")
_CGROUPS = Path("/sys/fs/cgroup")


def arrange(folders: Mapping[str, str], files: Mapping[str, str], hierarchies: Sequence[Hierarchy]) -> None:
    """Arrange the mount namespace of this process, which must share no mount with another.

    Args:
        folders: own folder by the path at which programs expect it; this machine's folder there is hidden, or need not exist.
        files: own file by the path at which programs expect it.
        hierarchies: the cgroups to mount; this process's cgroup becomes their root.
    """
    _mount(None, Path("/"), flags=_PRIVATE | _RECURSIVE)
    _mount("tmpfs", _RUN, kind="tmpfs", flags=_NO_SUID | _NO_DEVICES, options="mode=755")
    for target, source in folders.items():
        _make_room(Path(target), is_folder=True)
        _mount(source, Path(target), flags=_BIND)
    for target, source in files.items():
        found = Path(target).resolve()
        _make_room(found, is_folder=False)
        _mount(source, found, flags=_BIND)
    _mount("sysfs", _SYSFS, kind="sysfs", flags=_SEALED)
    _mount_cgroups(hierarchies)
    # As systemd does on a node: the kubelet hands mounts on to containers.
    _mount(None, Path("/"), flags=_SHARED | _RECURSIVE)


def _make_room(target: Path, *, is_folder: bool) -> None:
    """Make sure that something can be mounted at `target`, without adding anything to a file system of this machine."""
    if target.exists():
        return
    if not target.parent.is_dir():
        _make_room(target.parent, is_folder=True)
    if not target.parent.is_relative_to(_RUN):
        _reopen(target.parent)
    if is_folder:
        target.mkdir()
    else:
        target.touch()


def _reopen(folder: Path) -> None:
    """Replace a folder by one in memory with the same entries, to which others can be added."""
    entries = list(os.scandir(folder))
    mode = folder.stat().st_mode & 0o7777
    before = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    _mount("tmpfs", folder, kind="tmpfs", options=f"mode={mode:o}")
    for entry in entries:
        here, there = folder / entry.name, f"/proc/self/fd/{before}/{entry.name}"
        if entry.is_symlink():
            here.symlink_to(Path(there).readlink())
            continue
        if entry.is_dir():
            here.mkdir()
        else:
            here.touch()
        _mount(there, here, flags=_BIND | _RECURSIVE)
    os.close(before)


def _mount_cgroups(hierarchies: Sequence[Hierarchy]) -> None:
    if is_version_2(tuple(hierarchies)):
        _mount("cgroup2", _CGROUPS, kind="cgroup2", flags=_SEALED)
        # A cgroup of version 2 has either processes or children with controllers.
        own = _CGROUPS / "init"
        own.mkdir()
        (own / "cgroup.procs").write_text("0", encoding="utf-8")
        enable_controllers(_CGROUPS)
        return
    _mount("tmpfs", _CGROUPS, kind="tmpfs", flags=_SEALED, options="mode=755")
    for hierarchy in hierarchies:
        here = _CGROUPS / hierarchy.mount.name
        here.mkdir()
        if hierarchy.options is None:
            _mount("cgroup2", here, kind="cgroup2", flags=_SEALED)
            continue
        named = "none," if hierarchy.options.startswith("name=") else ""
        _mount("cgroup", here, kind="cgroup", flags=_SEALED, options=f"{named}{hierarchy.options}")
        for controller in hierarchy.controllers:
            alias = _CGROUPS / controller
            if "=" not in controller and not alias.exists():
                alias.symlink_to(here.name)


def _mount(source: str | None, target: Path, *, kind: str = "none", flags: int = 0, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    given = (source or "none").encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    if libc.mount(*given) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source or ''} {kind} {options}: {os.strerror(number)}", str(target))
