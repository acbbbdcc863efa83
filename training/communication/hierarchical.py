"""The hierarchical all-reduce: within each node, then between nodes, then within each node again.

A flat all-reduce of W ranks takes a node of L ranks as L peers, each of which gives it a whole gradient. Here the ranks of a node first
share their sum, 1 / L of it each (reduce-scatter); every rank sums its part with those of its counterparts on the other nodes
(all-reduce), and collects the other parts from its own node (all-gather). So a rank gives 1 / L of a gradient to what crosses nodes, and
a node one gradient in place of L. BlueConnect (Cho et al., MLSys 2019) divides an all-reduce in the same way.
"""
# DDP compares the annotations of a hook as types: no `from __future__ import annotations` here.

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.functional import pad
from torch.nn.parallel import DistributedDataParallel

from training.communication.nodes import NodeGroups


class HierarchicalAllReduce:
    """The communication hook of a `DistributedDataParallel`. It has no state to save."""

    def __init__(self, groups: NodeGroups, *, sent_as: torch.dtype) -> None:
        """Args: `groups` are those of this rank, `sent_as` is the type in which gradients are summed."""
        self._groups = groups
        self._sent_as = sent_as
        self._stream: torch.cuda.Stream | None = None

    def attach(self, parallel: DistributedDataParallel) -> None:
        """Become the hook of `parallel`."""
        parallel.register_comm_hook(self, HierarchicalAllReduce.reduce)

    def reduce(self, bucket: GradBucket) -> Future[Tensor]:
        """The mean of a bucket over the ranks; DDP calls it."""
        buffer = bucket.buffer()
        # Under Gloo the three calls return when they are done: what runs in its threads afterwards would send the buckets in another order
        # on every rank. Under NCCL they wait in a stream of their own, and the backward pass continues.
        reduced: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else [])
        with self._own_stream(buffer.device):
            self._average(buffer)
            reduced.set_result(buffer)
        return reduced

    def _average(self, buffer: Tensor) -> None:
        ranks, values = self._groups.within.size(), buffer.numel()
        sent = buffer.to(self._sent_as)
        if values % ranks:
            sent = pad(sent, (0, -values % ranks))
        sent.div_(dist.get_world_size())
        part = sent.new_empty(sent.numel() // ranks)
        dist.reduce_scatter_tensor(part, sent, group=self._groups.within)
        dist.all_reduce(part, group=self._groups.between)
        dist.all_gather_into_tensor(sent, part, group=self._groups.within)
        if sent is not buffer:
            buffer.copy_(sent[:values])

    def _own_stream(self, device: torch.device) -> AbstractContextManager[object]:
        if device.type != "cuda":
            return nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(device))
        return torch.cuda.stream(self._stream)
