"""Several hosts on one machine: network namespaces on a bridge, each with its own address and ports."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.engines.report_table import ran, skipped

NAME = "network namespaces"


@dataclass(frozen=True)
class Host:
    """A host.

    Attributes:
        namespace: name of its network namespace.
        address: its IPv4 address, reachable from the other hosts.
    """

    namespace: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """Prefix of a command that runs on the host."""
        return ("ip", "netns", "exec", self.namespace)

    def limit_rate(self, rate: str) -> None:
        """Send at most that much from now on, e.g. `50mbit` a second."""
        if shutil.which("tc") is None:
            skipped(NAME, "no tc on PATH", "apt-get install iproute2")
        device = self.namespace.replace("-", "i")
        shape = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "1s")
        subprocess.run([*self.prefix, "tc", "qdisc", "add", "dev", device, *shape], check=True, capture_output=True)


@contextmanager
def hosts(count: int) -> Iterator[Sequence[Host]]:
    """Create hosts while the context is open; skips without the rights to create them."""
    if shutil.which("ip") is None:
        skipped(NAME, "no ip on PATH", "apt-get install iproute2")
    if os.geteuid() != 0:
        skipped(NAME, "not root", "run the tests as root, e.g. in a container")
    # Interface names have at most 15 characters, and two test sessions may run at once.
    mark = f"rtp{os.getpid() % 100000}"
    subnet = f"10.213.{os.getpid() % 250}"
    with ExitStack() as undo:
        if subprocess.run(["ip", "link", "add", mark, "type", "bridge"], capture_output=True, check=False).returncode:
            skipped(NAME, "no permission to create a bridge", "give the container NET_ADMIN and SYS_ADMIN")
        undo.callback(_ip, "link", "delete", mark)
        _ip("link", "set", mark, "up")
        found = [_make_host(mark, number, f"{subnet}.{number}", undo) for number in range(1, count + 1)]
        ran(NAME)
        yield found


def _make_host(mark: str, number: int, address: str, undo: ExitStack) -> Host:
    namespace, inside, outside = f"{mark}-{number}", f"{mark}i{number}", f"{mark}o{number}"
    _ip("netns", "add", namespace)
    undo.callback(_ip, "netns", "delete", namespace)
    _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", namespace)
    # The kernel empties a deleted namespace later, and the next hosts use the same names.
    undo.callback(_ip, "link", "delete", outside)
    _ip("link", "set", outside, "master", mark, "up")
    _ip("-n", namespace, "address", "add", f"{address}/24", "dev", inside)
    _ip("-n", namespace, "link", "set", inside, "up")
    _ip("-n", namespace, "link", "set", "lo", "up")
    return Host(namespace, address)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
