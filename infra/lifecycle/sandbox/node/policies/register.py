"""The addresses of a node's pods, as files that the CNI plugin writes and the enforcer reads; they outlive both."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

_POLL_SECONDS = 0.02


class Register:
    """Which pod has which address of the node."""

    def __init__(self, folder: Path) -> None:
        """Use a folder that exists."""
        self._pods = folder / "pods"
        self._confirmed = folder / "confirmed.json"

    def create(self) -> None:
        """Make an empty register."""
        self._pods.mkdir(parents=True)
        self.confirm({})

    def add(self, sandbox: str, *, address: str, uid: str) -> None:
        """A pod has got an address.

        Args:
            sandbox: id of the sandbox (containerd's word) that has the address; a pod may have one after another.
            address: the address.
            uid: the pod's uid.
        """
        _write(self._pods / sandbox, {address: uid})

    def remove(self, sandbox: str) -> None:
        """The address of a sandbox is free; so it is if the sandbox never had one."""
        (self._pods / sandbox).unlink(missing_ok=True)

    def addresses(self) -> dict[str, str]:
        """Uid of the pod by address."""
        found: dict[str, str] = {}
        for file in self._pods.iterdir():
            if not file.name.endswith(".partial"):
                found |= _read(file)
        return found

    def confirm(self, addresses: Mapping[str, str]) -> None:
        """The policies of these pods hold."""
        _write(self._confirmed, addresses)

    def await_confirmed(self, address: str, uid: str, *, seconds: float) -> bool:
        """Wait until the policies of a pod hold; whether they do."""
        deadline = time.monotonic() + seconds
        while _read(self._confirmed).get(address) != uid:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def _read(file: Path) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:  # removed meanwhile
        return {}
    return found


def _write(file: Path, contents: Mapping[str, str]) -> None:
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(json.dumps(dict(contents)), encoding="utf-8")
    partial.replace(file)
