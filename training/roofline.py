"""What an instance type can reach at most, computed from data sheets: the table of docs/GPU_OPTIMIZATION.md.

    python -m training.roofline         # write the table into the document

Computed, not measured. The ridge point is the arithmetic intensity from which a kernel is bound by arithmetic instead of by memory
(Williams, Waterman, Patterson, "Roofline", 2009). In a ring, each of n nodes sends 2 (n - 1) / n times the buffer (Patarasuk, Yuan, 2009).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from infra.spec.catalog import Gpu, InstanceType, load_catalog
from training.peak_flops import Format, peak_flops

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "GPU_OPTIMIZATION.md"

MEMORY_GB_PER_SECOND: Final[Mapping[str, float]] = {
    "T4": 300,
    "A10G": 600,
    "L4": 300,
    "L40S": 864,
    "A100 40 GB": 1555,
    "A100 80 GB": 2039,
    "H100": 3350,
    "H200": 4800,
    "B200": 7700,
    "B300": 7700,
}
"""Memory bandwidth of a GPU in 10^9 bytes per second.

Sources: NVIDIA's data sheets of T4 (951643), A10G (which AWS publishes), L4, L40S, A100 (SXM), H100 (SXM) and H200 (SXM); for B200 and B300
table 3, HGX B300 and B200, of NVIDIA's "Blackwell Architecture Technical Brief" V2.1, where other pages say "up to 8 TB/s"."""

_A100: Final = "A100"
_BUFFER_BYTES: Final = 1e9
_NODES: Final = (2, 8)


class Limits(NamedTuple):
    """What an instance type can reach at most.

    Attributes:
        instance: the type.
        gpu: its GPUs, each of which has:
        memory_bandwidth: bytes per second.
        number_format: the one of `flops`: bf16, or fp16 where the tensor cores have no bf16.
        flops: dense peak in FLOP/s.
        network_bandwidth: of the whole node, bytes per second that last.
    """

    instance: InstanceType
    gpu: Gpu
    memory_bandwidth: float
    number_format: Format
    flops: float
    network_bandwidth: float

    @property
    def ridge(self) -> float:
        """FLOPs per byte of memory traffic from which arithmetic is the limit."""
        return self.flops / self.memory_bandwidth

    def all_reduce_seconds(self, nodes: int, size: float = _BUFFER_BYTES) -> float:
        """Time of a ring all-reduce of `size` bytes over the network between `nodes` nodes, without latency."""
        return 2 * (nodes - 1) / nodes * size / self.network_bandwidth


def limits() -> Iterator[Limits]:
    """The limits of the catalogue's types whose GPUs have a published peak, in the catalogue's order."""
    for instance in load_catalog().instances.values():
        gpu, network = instance.gpu, instance.network_gbits
        if gpu is None or network is None:
            continue
        used: Format = "fp16" if peak_flops(gpu.model, "bf16") is None else "bf16"
        peak = peak_flops(gpu.model, used)
        if peak is not None:
            yield Limits(instance, gpu, MEMORY_GB_PER_SECOND[_sheet(gpu)] * 1e9, used, peak, network * 1e9 / 8)


def table() -> str:
    """The table, in Markdown."""
    columns = (
        *("instance type", "GPUs", "memory of a GPU", "memory bandwidth", "dense peak", "ridge point", "network"),
        *(f"1 GB over {nodes} nodes" for nodes in _NODES),
    )
    rows = [columns, ("---",) * len(columns), *map(_row, limits())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def replaced(text: str) -> str:
    """The document with the table as it is now."""
    return re.sub(
        r"(<!-- begin computed -->\n).*(<!-- end computed -->)",
        lambda found: f"{found[1]}{table()}{found[2]}",
        text,
        flags=re.DOTALL,
    )


def _sheet(gpu: Gpu) -> str:
    """The data sheet's name of a GPU: A100s of 40 GB and of 80 GB have different memory."""
    return f"{_A100} {gpu.memory_mib // 1024} GB" if gpu.model == _A100 else gpu.model


def _row(one: Limits) -> tuple[str, ...]:
    note = "" if one.number_format == "bf16" else f" ({one.number_format})"
    return (
        f"`{one.instance.name}`",
        f"{one.gpu.count} x {one.gpu.model}",
        f"{one.gpu.memory_mib / 1024:.0f} GiB",
        f"{one.memory_bandwidth / 1e9:,.0f} GB/s",
        f"{one.flops / 1e12:,.4g} TFLOP/s{note}",
        f"{one.ridge:.0f} FLOP/byte",
        f"{one.network_bandwidth * 8 / 1e9:,.4g} Gbit/s",
        *(_milliseconds(one.all_reduce_seconds(nodes)) for nodes in _NODES),
    )


def _milliseconds(seconds: float) -> str:
    milliseconds = seconds * 1e3
    return f"{milliseconds:,.1f} ms" if milliseconds < 100 else f"{milliseconds:,.0f} ms"


if __name__ == "__main__":
    DOCUMENT.write_text(replaced(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
