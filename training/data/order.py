"""Sample order and its division into steps, ranks and micro-batches: pure functions of (seed, epoch, position).

A position is an index into the epoch's order; the global batch of step s is the positions [s * B, (s + 1) * B). World
size, accumulation and loader workers only decide who reads a position. They never change its sample or augmentation, so
a run can resume with another world size and still reads each sample once.

All random numbers are raw 64-bit outputs of Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", SC'11), addressed by key (seed, epoch) and counter (block, 0, 0, stream). NumPy guarantees that the stream of a bit
generator never changes, but gives no such guarantee for the methods of `Generator` (NEP 19).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4
"""64-bit outputs per Philox counter value."""


class Stream(IntEnum):
    """Purpose of the random numbers; streams never overlap."""

    ORDER = 0
    AUGMENTATION = 1
    HOLDOUT = 2
    SYNTHETIC = 3


def philox(*, seed: int, epoch: int, stream: Stream, block: int = 0) -> np.random.Philox:
    """Returns the bit generator of a stream, positioned at a block of four 64-bit outputs.

    Args:
        seed: 0 <= seed < 2**63.
        epoch: epoch, or 0 for numbers that do not depend on it.
        stream: purpose of the numbers.
        block: first block to generate.
    """
    return np.random.Philox(key=[seed, epoch], counter=[block, 0, 0, stream])


def epoch_order(*, seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Returns the sample id at each position of an epoch: a permutation of 0 ... size - 1, shape (size,).

    Sorts samples by a random 64-bit key. Equal keys, with probability size**2 / 2**65, keep the order of their ids.
    """
    keys = philox(seed=seed, epoch=epoch, stream=Stream.ORDER).random_raw(size)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def windowed_order(*, seed: int, epoch: int, groups: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """Returns the sample id at each position of an epoch that reads a few groups of samples at a time, shape (len(groups),).

    The groups are shuffled, and then the samples within each `window` successive ones of that order.

    Args:
        seed: seed of the run.
        epoch: epoch.
        groups: number of each sample's group, from 0 without gaps, shape (n,).
        window: groups whose samples are mixed.
    """
    count = int(groups.max(initial=-1)) + 1
    keys = philox(seed=seed, epoch=epoch, stream=Stream.ORDER).random_raw(count + len(groups))
    window_of_group = np.argsort(np.argsort(keys[:count], kind="stable"), kind="stable") // window
    # By window, then by the sample's key. `lexsort` is stable, too.
    return np.lexsort((keys[count:], window_of_group[groups])).astype(np.int64, copy=False)


def uniforms(
    *, seed: int, epoch: int, positions: range, draws: int, stream: Stream = Stream.AUGMENTATION
) -> NDArray[np.float64]:
    """Returns `draws` numbers in [0, 1) for each position, shape (len(positions), draws).

    The row of a position does not depend on the other positions. A number is the upper 53 bits of an output, the
    precision of a float64.

    Args:
        seed: seed of the run.
        epoch: epoch of the positions.
        positions: consecutive positions.
        draws: numbers per position, at least 1.
        stream: purpose of the numbers.
    """
    blocks = -(-draws // _BLOCK)
    generator = philox(seed=seed, epoch=epoch, stream=stream, block=positions.start * blocks)
    raw = generator.random_raw(len(positions) * blocks * _BLOCK).reshape(len(positions), blocks * _BLOCK)
    return (raw[:, :draws] >> np.uint64(11)).astype(np.float64) * 2.0**-53


def share(total: int, *, parts: int, index: int) -> range:
    """Returns share `index` of 0 ... total - 1 divided into `parts` consecutive shares, the first ones larger by 1."""
    size, larger = divmod(total, parts)
    start = index * size + min(index, larger)
    return range(start, start + size + (index < larger))


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Divides an epoch into optimizer steps, and each step into the micro-batches of the ranks.

    Attributes:
        size: samples in the training split.
        global_batch: samples per optimizer step over all ranks; the last step of an epoch may have fewer.
        world: number of ranks, or of groups of ranks that read the same samples (`training.data.place`).
        accumulation: micro-batches per rank and step.
    """

    size: int
    global_batch: int
    world: int
    accumulation: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps that read every sample of the split once."""
        return -(-self.size // self.global_batch)

    def global_count(self, step_in_epoch: int) -> int:
        """Returns the number of samples of a step over all ranks, by which the sum of their losses is divided.

        Raises:
            ValueError: the epoch has no such step.
        """
        if not 0 <= step_in_epoch < self.steps_per_epoch:
            raise ValueError(f"step_in_epoch={step_in_epoch}, expected 0 <= step_in_epoch < {self.steps_per_epoch}")
        return min(self.global_batch, self.size - step_in_epoch * self.global_batch)

    def positions(self, step_in_epoch: int, *, rank: int, micro: int) -> range:
        """Returns the positions of one micro-batch, which may be empty in a short last step.

        The step is divided into `world * accumulation` consecutive shares, of which each rank has consecutive ones. So its micro-batches
        depend on their number alone: 4 ranks with one each and 2 ranks with two have the same ones, in a short step too.

        Raises:
            ValueError: the epoch has no such step.
        """
        own = share(
            self.global_count(step_in_epoch),
            parts=self.world * self.accumulation,
            index=rank * self.accumulation + micro,
        )
        first = step_in_epoch * self.global_batch
        return range(first + own.start, first + own.stop)
