"""Which samples an optimizer step takes and which rank gets which: pure functions of (seed, epoch, position).

A position is a place in the epoch's order; the global batch of step s is the positions [s * B, (s + 1) * B). World
size, accumulation and loader processes only decide who reads a position, never which sample or which augmentation it
stands for, so a run may be resumed with another world and still sees each sample once.

All random numbers are raw 64-bit outputs of Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", SC'11), addressed by key (seed, epoch) and counter (block, 0, 0, stream). Raw outputs are used because NumPy
promises that the stream of a bit generator never changes, but promises it for no method of `Generator` (NEP 19).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4
"""64-bit outputs per Philox counter value."""


class Stream(IntEnum):
    """What random numbers are drawn for; streams never overlap."""

    ORDER = 0
    AUGMENTATION = 1
    HOLDOUT = 2
    SYNTHETIC = 3


def philox(*, seed: int, epoch: int, stream: Stream, block: int = 0) -> np.random.Philox:
    """Returns the generator of a stream, positioned at a block of four 64-bit outputs.

    Args:
        seed: 0 <= seed < 2**63.
        epoch: 0 for what does not change with the epoch.
        stream: what the numbers are for.
        block: first block of the stream to be generated.
    """
    return np.random.Philox(key=[seed, epoch], counter=[block, 0, 0, stream])


def epoch_order(*, seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Returns the epoch's order: sample id at each position, a permutation of 0 ... size - 1, shape (size,).

    Every sample draws a 64-bit key and the keys are sorted. Equal keys, of probability size**2 / 2**65, keep the order
    of their ids.
    """
    keys = philox(seed=seed, epoch=epoch, stream=Stream.ORDER).random_raw(size)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def uniforms(
    *, seed: int, epoch: int, positions: range, draws: int, stream: Stream = Stream.AUGMENTATION
) -> NDArray[np.float64]:
    """Returns `draws` numbers in [0, 1) for each position, shape (len(positions), draws).

    The row of a position does not depend on which other positions are asked for. Numbers are the upper 53 bits of
    an output, all that a float64 in [0, 1) has room for.

    Args:
        seed: seed of the run.
        epoch: epoch the positions are of.
        positions: consecutive positions.
        draws: numbers per position, at least 1.
        stream: what the numbers are for.
    """
    blocks = -(-draws // _BLOCK)
    generator = philox(seed=seed, epoch=epoch, stream=stream, block=positions.start * blocks)
    raw = generator.random_raw(len(positions) * blocks * _BLOCK).reshape(len(positions), blocks * _BLOCK)
    return (raw[:, :draws] >> np.uint64(11)).astype(np.float64) * 2.0**-53


def share(total: int, *, parts: int, index: int) -> range:
    """Returns one of `parts` consecutive shares of 0 ... total - 1; sizes differ by at most 1, larger ones first."""
    size, larger = divmod(total, parts)
    start = index * size + min(index, larger)
    return range(start, start + size + (index < larger))


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How an epoch is cut into optimizer steps, and a step into the micro-batches of the ranks.

    Attributes:
        size: samples in the training split.
        global_batch: samples per optimizer step over all ranks; only the last step of an epoch may have fewer.
        world: number of ranks.
        accumulation: micro-batches per rank and step.
    """

    size: int
    global_batch: int
    world: int
    accumulation: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in which every sample of the split is used once."""
        return -(-self.size // self.global_batch)

    def global_count(self, step_in_epoch: int) -> int:
        """Returns the samples of a step over all ranks: what a sum of losses is to be divided by.

        Raises:
            ValueError: the epoch has no such step.
        """
        if not 0 <= step_in_epoch < self.steps_per_epoch:
            raise ValueError(f"step_in_epoch={step_in_epoch} is not in 0 ... {self.steps_per_epoch - 1}")
        return min(self.global_batch, self.size - step_in_epoch * self.global_batch)

    def positions(self, step_in_epoch: int, *, rank: int, micro: int) -> range:
        """Returns the positions of one micro-batch, possibly none in a short last step.

        Ranks get consecutive shares of the step, and micro-batches consecutive shares of their rank's.

        Raises:
            ValueError: the epoch has no such step.
        """
        of_rank = share(self.global_count(step_in_epoch), parts=self.world, index=rank)
        of_micro = share(len(of_rank), parts=self.accumulation, index=micro)
        first = step_in_epoch * self.global_batch + of_rank.start
        return range(first + of_micro.start, first + of_micro.stop)
