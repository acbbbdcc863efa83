"""Buffers of a model of which every rank has its own, such as batch norm's running statistics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.data.types import Batch
from training.passes import Passes, PassesDone


@torch.no_grad()
def copy_from_rank_0(
    module: nn.Module, group: dist.ProcessGroup | None = None, *, names: Collection[str] | None = None
) -> None:
    """Copy the buffers of the first rank of a group, by default of all ranks, to its peers; one broadcast for those of a type.

    Args:
        module: has the buffers.
        group: of ranks that have the same module.
        names: of the buffers; None for all.
    """
    of_types: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for name, buffer in module.named_buffers():
        if names is None or name in names:
            of_types[buffer.dtype].append(buffer)
    for buffers in of_types.values():
        values = torch.cat([buffer.reshape(-1) for buffer in buffers])
        dist.broadcast(values, group=group, group_src=0)
        for buffer, value in zip(buffers, values.split_with_sizes([one.numel() for one in buffers]), strict=True):
            buffer.copy_(value.view(buffer.shape))


class FromBuffersOfRank0:
    """Passes of steps that each begin with the buffers of the first rank, as DDP's do.

    Checkpoints have its buffers alone: a run whose ranks computed with their own would go on otherwise when it is resumed. Of the buffers
    that are not persistent, such as masks and tables, those are copied that the first step has changed.
    """

    def __init__(self, passes: Passes, module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        self._passes = passes
        self._module = module
        self._group = group
        self._names: set[str] | None = None

    @property
    def has_losses(self) -> bool:
        """See `Passes`."""
        return self._passes.has_losses

    def run(self, step: int, micro_batches: list[Batch], *, total: Tensor | int) -> PassesDone:
        """See `Passes`."""
        if self._names is not None:
            if self._names:
                copy_from_rank_0(self._module, self._group, names=self._names)
            return self._passes.run(step, micro_batches, total=total)
        before = self._versions()
        done = self._passes.run(step, micro_batches, total=total)
        persistent = self._module.state_dict().keys()
        after = self._versions()
        changed = [name in persistent or after[name] != before.get(name) for name in after]
        self._names = {name for name, is_changed in zip(after, self._agreed(changed), strict=True) if is_changed}
        return done

    def _versions(self) -> dict[str, tuple[int, int]]:
        return {name: (one.data_ptr(), one._version) for name, one in self._module.named_buffers()}  # noqa: SLF001

    def _agreed(self, changed: list[bool]) -> list[bool]:
        """What is so on any rank."""
        if not changed:
            return changed
        device = next(self._module.buffers()).device
        found = torch.tensor(changed, dtype=torch.int32, device=device)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._group)
        return [bool(one) for one in found.tolist()]
