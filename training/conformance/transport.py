"""Which network NCCL uses, from its own log and from the counters of EFA devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PROVIDER = re.compile(r"NET/OFI Selected provider is (?P<name>[\w;-]+)", re.IGNORECASE)
"""aws-ofi-nccl says which provider of libfabric it has chosen, e.g. `NET/OFI Selected provider is efa, fabric is efa-direct`."""

_CHANNEL = re.compile(r"(?:Using network |via NET/)(?:AWS )?(?P<name>Libfabric|Socket|IB)\b")
"""NCCL says which network plugin it uses, and for each channel which network it goes through."""

EFA = "efa"
LIBFABRIC = "libfabric"
SOCKET = "socket"

_COUNTERS = ("tx_bytes", "rdma_read_bytes", "rdma_write_bytes")
"""What goes through an EFA device, with and without RDMA (EC2 user guide, "Monitor an Elastic Fabric Adapter")."""


def networks_in(lines: Iterable[str]) -> tuple[str, ...]:
    """Networks and providers that NCCL's log names, in lower case, sorted; empty if NCCL has used none."""
    found = set()
    for line in lines:
        for match in (*_PROVIDER.finditer(line), *_CHANNEL.finditer(line)):
            found.add(match["name"].lower())
    return tuple(sorted(found))


def sent_bytes(devices: Path = Path("/sys/class/infiniband")) -> int | None:
    """Bytes that the EFA devices of this node have sent; None if the pod sees no counters."""
    counted = []
    for name in _COUNTERS:
        for file in devices.glob(f"*/ports/*/hw_counters/{name}"):
            with suppress(OSError, ValueError):
                counted.append(int(file.read_text(encoding="ascii")))
    return sum(counted) if counted else None
