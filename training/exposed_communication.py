"""Exposed communication: the part of a step in which a rank has its own gradients and waits for those of its peers.

Data parallelism sums the gradients bucket by bucket while the backward pass computes the next ones. That part is hidden. The rest is
exposed: from the moment this rank has computed its last gradient to the moment every bucket is summed. It ends when the slowest rank has
delivered, so it has two causes, the network and a slower peer; the rank with the least of it, which waits for nobody, shows the network's
share. What copies buffers before a forward pass, and the small all-reduces of `training.step` and `training.step_reducer`, are not in it.

The autograd engine calls its final callbacks in the order in which they were queued. `DistributedDataParallel` queues the one that
waits when its last bucket is ready. So a callback that the first hook of the backward pass queues runs between the two.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.autograd import Variable


def when_gradients_are_computed(loss: Tensor, call: Callable[[], None]) -> None:
    """Call `call` in the backward pass of `loss`, once, between the last gradient of this rank and the wait for its peers'."""

    def queue(_: Tensor) -> None:
        Variable._execution_engine.queue_callback(call)  # noqa: SLF001 - how torch's own FSDP does it; there is no public name

    loss.register_hook(queue)  # type: ignore[no-untyped-call]
