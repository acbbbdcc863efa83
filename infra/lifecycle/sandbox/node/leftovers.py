"""What real nodes leave behind when their keeper is killed: cgroups, files, and for an instant a link."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from infra.lifecycle.sandbox.node import cgroups
from infra.lifecycle.sandbox.node.addresses import name_of
from infra.spec.errors import PlatformError

_LINK_SECONDS = 10.0
_POLL_SECONDS = 0.05


def node_folder(folder: Path) -> Path:
    """Files of the real nodes of the sandbox in `folder`."""
    return folder.with_name(f"{folder.name}-nodes")


def remove(folder: Path) -> bool:
    """End and remove all that is left of the real nodes of the sandbox in `folder`, which runs no more; whether there was anything.

    Raises:
        PlatformError: a process does not end, or the link stays.
    """
    files = node_folder(folder)
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    name = name_of(folder)
    found = cgroups.remove(name)
    if files.is_dir():
        shutil.rmtree(files)
        found = True
    _await_link(name)
    return found


def _await_link(name: str) -> None:
    """Wait until the kernel has removed the link of a namespace that has ended, which it does later."""
    deadline = time.monotonic() + _LINK_SECONDS
    while Path("/sys/class/net", name).exists():
        if time.monotonic() > deadline:
            raise PlatformError(f"network link {name} is still there", remedy=f"ip link delete {name}")
        subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)  # or the kernel was faster
        time.sleep(_POLL_SECONDS)
