"""Several hosts on one machine: network namespaces on a bridge, each with its own address and ports, and links of any rate.

Needs root on Linux, and `ip` and `tc` of iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.spec.errors import RefusedError

_WHAT = "several hosts on one machine"
_COUNTERS = Path("/proc/net/dev")
_HEADERS = 14 + 20 + 32
"""Bytes of a frame before the payload: Ethernet, IPv4, and TCP with time stamps."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host.

    Attributes:
        namespace: name of its network namespace.
        address: its IPv4 address, reachable from the other hosts.
        inside: name of its interface.
        outside: name of the other end of its link, on this machine's bridge.
    """

    namespace: str
    address: str
    inside: str
    outside: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """Prefix of a command that runs on the host."""
        return ("ip", "netns", "exec", self.namespace)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What a host has sent since it was created: frames, and their bytes."""

    frames: float
    bytes: float

    def __sub__(self, earlier: Sent) -> Sent:
        return Sent(frames=self.frames - earlier.frames, bytes=self.bytes - earlier.bytes)

    @property
    def payload(self) -> float:
        """Bytes without the headers: what programs gave to TCP."""
        return self.bytes - self.frames * _HEADERS


def sent_by(hosts: Sequence[Host]) -> list[Sent]:
    """What each host has sent, as the other end of its link counts it: behind the limit of the rate."""
    counters = parse_counters(_COUNTERS.read_text(encoding="ascii"))
    return [counters[host.outside] for host in hosts]


def parse_counters(text: str) -> dict[str, Sent]:
    """What each interface has received, by its name, from the text of `/proc/net/dev` (proc_pid_net(5))."""
    lines = (line.partition(":") for line in text.splitlines()[2:])
    return {
        name.strip(): Sent(bytes=float(values[0]), frames=float(values[1]))
        for name, _, after in lines
        if (values := after.split())
    }


@contextmanager
def hosts(count: int, *, rate: str | None = None) -> Iterator[Sequence[Host]]:
    """Create hosts while the context is open.

    Args:
        count: of the hosts.
        rate: what each sends at most, e.g. `50mbit` a second; None limits nothing.

    Raises:
        RefusedError: this machine, or this user, cannot create them.
    """
    _refuse_without_tools()
    # Interface names have at most 15 characters, and two processes may create hosts at once.
    mark = f"rtp{os.getpid() % 100000}"
    subnet = f"10.213.{os.getpid() % 250}"
    with ExitStack() as undo:
        if subprocess.run(["ip", "link", "add", mark, "type", "bridge"], capture_output=True, check=False).returncode:
            raise RefusedError(
                f"{_WHAT} need a bridge, which root may not create here",
                remedy="give the container NET_ADMIN and SYS_ADMIN",
            )
        undo.callback(_ip, "link", "delete", mark)
        _ip("link", "set", mark, "up")
        found = [_make_host(mark, number, f"{subnet}.{number}", undo) for number in range(1, count + 1)]
        for host in found if rate is not None else ():
            _limit_rate(host, str(rate))
        yield found


def _refuse_without_tools() -> None:
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise RefusedError(
                f"{_WHAT} need network namespaces of Linux, and there is no {tool} on PATH",
                remedy="apt-get install iproute2",
            )
    if os.geteuid() != 0:
        raise RefusedError(
            f"{_WHAT} need network namespaces, which only root may create; this is user {os.geteuid()}",
            remedy="run it as root, e.g. in a container",
        )


def _make_host(mark: str, number: int, address: str, undo: ExitStack) -> Host:
    host = Host(namespace=f"{mark}-{number}", address=address, inside=f"{mark}i{number}", outside=f"{mark}o{number}")
    _ip("netns", "add", host.namespace)
    undo.callback(_ip, "netns", "delete", host.namespace)
    _ip("link", "add", host.outside, "type", "veth", "peer", "name", host.inside, "netns", host.namespace)
    # The kernel empties a deleted namespace later, and the next hosts use the same names.
    undo.callback(_ip, "link", "delete", host.outside)
    _ip("link", "set", host.outside, "master", mark, "up")
    _ip("-n", host.namespace, "address", "add", f"{address}/24", "dev", host.inside)
    _ip("-n", host.namespace, "link", "set", host.inside, "up")
    _ip("-n", host.namespace, "link", "set", "lo", "up")
    return host


def _limit_rate(host: Host, rate: str) -> None:
    shape = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "1s")
    command = [*host.prefix, "tc", "qdisc", "add", "dev", host.inside, *shape]
    added = subprocess.run(command, capture_output=True, text=True, check=False)
    if added.returncode:
        raise RefusedError(
            f"tc cannot limit the rate of an interface to {rate}: {added.stderr.strip()}",
            remedy="use a kernel with the token bucket filter: modprobe sch_tbf",
        )


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
