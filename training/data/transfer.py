"""Copies batches to a GPU one item ahead, while it computes the item before.

A copy overlaps with computation only from pinned host memory and in a stream of its own; from other memory, `non_blocking` copies through
a staging buffer in the stream that computes (CUDA C++ programming guide, "Overlap of Data Transfer and Kernel Execution"). The order of the
items does not change, and no item is dropped: loaders are stateless, so what was read ahead and not consumed is read again after a resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from training.data.types import Batch
from training.errors import PlatformError

_Item = TypeVar("_Item")
_Copy = TypeVar("_Copy")


class Copies(Protocol[_Item, _Copy]):
    """Starts copies and finishes them in the same order."""

    def start(self, item: _Item, /) -> _Copy:
        """Start to copy an item, and return at once."""

    def finish(self, copy: _Copy, /) -> _Item:
        """The copied item; what is computed on it from now on waits for its copy."""


def one_ahead(items: Iterable[_Item], copies: Copies[_Item, _Copy]) -> Iterator[_Item]:
    """Yields the items, each copied; while the consumer has one, the copy of the next is under way.

    Raises:
        PlatformError: an item cannot be read; raised after the one before it has been consumed, as without copies.
    """
    copying: _Copy | None = None
    try:
        for item in items:
            started = copies.start(item)
            if copying is not None:
                yield copies.finish(copying)
            copying = started
    except PlatformError:
        if copying is not None:
            yield copies.finish(copying)
        raise
    if copying is not None:
        yield copies.finish(copying)


@dataclass(frozen=True)
class _Started:
    """Batches on the GPU, and the event that their copy has arrived."""

    batches: list[Batch]
    arrived: torch.cuda.Event


class CudaCopies:
    """Copies the batches of one step at a time in a stream of its own. The GPU holds two steps' batches at most."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def start(self, batches: list[Batch], /) -> _Started:
        """Start to copy batches, which are pinned first unless a loader's thread has done it.

        The host's tensors may be freed at once: torch keeps pinned memory until the stream has passed the copy.
        """
        with torch.cuda.stream(self._stream):
            copied = [batch.pin_memory().to(self._device) for batch in batches]
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        return _Started(copied, arrived)

    def finish(self, started: _Started, /) -> list[Batch]:
        """Let the current stream wait for these batches, and only these: the next copy may be under way behind them."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(started.arrived)
        for batch in started.batches:
            # Their memory is the copying stream's, which could reuse it for the next copy while this stream still reads.
            batch.inputs.record_stream(stream)
            batch.targets.record_stream(stream)
        return started.batches
