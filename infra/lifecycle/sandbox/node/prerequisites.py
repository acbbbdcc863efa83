"""What this machine needs for a real node; everything is checked before anything starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.lifecycle.sandbox.modules import NODE_MODULES
from infra.lifecycle.sandbox.node import cgroups
from infra.spec.errors import RefusedError

PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "openssl": "openssl",
}
"""Debian package of each program that is looked up on PATH."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Folders of system programs, which PATH may lack."""

_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
_PLUGIN_PACKAGE = "containernetworking-plugins"
_PLUGIN_FOLDERS = (Path("/opt/cni/bin"), Path("/usr/lib/cni"), Path("/usr/libexec/cni"))

_FREE_GIB = 4
"""Programs, logs and the kubelet's own reserve (`configuration.RESERVE`), without images."""

_WITHOUT = "without --real the sandbox needs none of this: its nodes are fake, and pods do not run"
_RULES = """*filter
:T - [0:0]
-A T -m conntrack --ctstate INVALID -m comment --comment probe -j DROP
-A T -m addrtype --dst-type LOCAL -m mark --mark 0x4000/0x4000 -j REJECT
COMMIT
*nat
:T - [0:0]
-A T -m statistic --mode random --probability 0.5 -j MARK --or-mark 0x4000
-A T -p tcp -m tcp -j DNAT --to-destination 192.0.2.1:80
-A T -j MASQUERADE
COMMIT
"""
"""The kinds of rules that kube-proxy writes."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Programs of a real node.

    Attributes:
        programs: path by name, of this machine's (`PACKAGES`) and of those that `make engines` builds.
        plugins: folder of the CNI plugins.
        iptables: path of the variant of iptables that this kernel supports.
        snapshotter: containerd's snapshotter: `overlayfs`, or `native` where the file system cannot be under an overlay.
    """

    programs: Mapping[str, Path]
    plugins: Path
    iptables: Path
    snapshotter: str


def check(folder: Path, environment: Mapping[str, str]) -> Tools:
    """Find what a real node needs.

    Args:
        folder: will hold the nodes' files; need not exist.
        environment: PATH, and see `modules.cache_root`.

    Raises:
        RefusedError: something is missing; says what, and what provides it.
    """
    _check_rights()
    path = f"{environment.get('PATH', '')}:{SYSTEM_PATH}"
    programs = {**_system_programs(path), **_built_programs(environment)}
    plugins = _plugin_folder()
    _check_cgroups()
    place = next(parent for parent in folder.resolve().parents if parent.is_dir())
    _check_disk(place)
    return Tools(
        programs=programs,
        plugins=plugins,
        iptables=_working_iptables(path),
        snapshotter="overlayfs" if _has_overlay(place) else "native",
    )


def _check_rights() -> None:
    if sys.platform != "linux":
        raise RefusedError(
            f"a real node needs Linux; this is {sys.platform}", remedy=f"use a Linux machine; {_WITHOUT}"
        )
    if os.geteuid() != 0:
        raise RefusedError(
            "a real node needs root, for namespaces, mounts and cgroups", remedy=f"run it as root; {_WITHOUT}"
        )
    probe = ["unshare", "--fork", "--pid", "--mount", "--net", "--uts", "--ipc", "--cgroup", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RefusedError(
            f"a real node needs namespaces of its own, and this machine refuses them: {done.stderr.strip()}",
            remedy=f"in a container, add the capabilities SYS_ADMIN and NET_ADMIN (docker run --privileged); {_WITHOUT}",
        )


def _system_programs(path: str) -> dict[str, Path]:
    found = {program: shutil.which(program, path=path) for program in PACKAGES}
    missing = [program for program, place in found.items() if place is None]
    if missing:
        packages = sorted({PACKAGES[program] for program in missing})
        raise RefusedError(f"a real node needs {', '.join(missing)}: not on PATH", remedy=_installing(*packages))
    return {program: Path(place) for program, place in found.items() if place is not None}


def _built_programs(environment: Mapping[str, str]) -> dict[str, Path]:
    places = {
        program: module.cache_folder(environment) / program for module in NODE_MODULES for program in module.packages
    }
    missing = [program for program, place in places.items() if not os.access(place, os.X_OK)]
    if missing:
        raise RefusedError(
            f"a real node needs {', '.join(missing)}: not in {places[missing[0]].parents[1]}",
            remedy="make engines REAL=1 builds them once with Go, about 10 minutes on 2 cores beside those of make engines",
        )
    return places


def _plugin_folder() -> Path:
    for folder in _PLUGIN_FOLDERS:
        if all(os.access(folder / plugin, os.X_OK) for plugin in _PLUGINS):
            return folder
    raise RefusedError(
        f"a real node needs the CNI plugins {', '.join(_PLUGINS)}: not in {', '.join(map(str, _PLUGIN_FOLDERS))}",
        remedy=_installing(_PLUGIN_PACKAGE),
    )


def _installing(*packages: str) -> str:
    # Their services are not needed, and RUNLEVEL=1 keeps them from starting.
    return f"RUNLEVEL=1 apt-get install --no-install-recommends {' '.join(packages)}; {_WITHOUT}"


def _check_cgroups() -> None:
    found = cgroups.hierarchies()
    if cgroups.is_version_2(found):
        names = set((found[0].mount / "cgroup.controllers").read_text(encoding="utf-8").split()) if found else set()
    else:
        names = {controller for hierarchy in found for controller in hierarchy.controllers}
    missing = {"cpu", "cpuset", "memory", "pids"} - names
    if missing:
        raise RefusedError(
            f"a real node needs the cgroup controllers {', '.join(sorted(missing))}, which are not mounted in /sys/fs/cgroup",
            remedy=f"mount cgroups of version 1 or 2 with them; {_WITHOUT}",
        )


def _check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free / 2**30
    if free < _FREE_GIB:
        raise RefusedError(
            f"a real node needs {_FREE_GIB} GiB in {folder}, and the size of its images; {free:.1f} GiB are free",
            remedy="free some space (make clean, docker system prune)",
        )


def _working_iptables(path: str) -> Path:
    """The first variant that accepts rules like kube-proxy's, tried in a network namespace of its own."""
    said = []
    for variant in ("iptables", "iptables-legacy", "iptables-nft"):
        program, restore = (shutil.which(name, path=path) for name in (variant, f"{variant}-restore"))
        if program is None or restore is None:
            continue
        done = subprocess.run(["unshare", "--net", restore], input=_RULES, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return Path(program)
        said.append(f"{variant}: {done.stderr.strip()}")
    raise RefusedError(
        "a real node needs iptables with NAT, which this kernel does not provide:\n  " + "\n  ".join(said),
        remedy=f"load the kernel's modules iptable_nat, xt_MASQUERADE, xt_statistic, xt_addrtype and xt_comment; {_WITHOUT}",
    )


def _has_overlay(folder: Path) -> bool:
    """Whether an overlay works on the file system of `folder`, tried in a mount namespace of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as probe:
        names = {name: Path(probe, name) for name in ("lower", "upper", "work", "merged")}
        for place in names.values():
            place.mkdir()
        options = f"lowerdir={names['lower']},upperdir={names['upper']},workdir={names['work']}"
        mount: list[str | Path] = [
            "unshare",
            "--mount",
            "mount",
            "-t",
            "overlay",
            "overlay",
            "-o",
            options,
            names["merged"],
        ]
        return subprocess.run(mount, capture_output=True, check=False).returncode == 0
