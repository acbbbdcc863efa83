"""One optimizer step: micro-batches forward and backward, gradients summed over the ranks, clipped, applied.

The gradient is that of the mean loss over the *global* batch, whatever the world, the accumulation or a batch cut short by the end of
the epoch: each rank sums the losses of its own samples and divides by the global count. DDP divides by the world size when it reduces,
which the factor `world` takes back.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from training.data.types import Batch
from training.precision import Precision
from training.seeding import seed_step


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What this rank knows after a step.

    Attributes:
        loss_sum: sum of the losses of this rank's samples.
        correct: this rank's samples classified rightly.
        samples: this rank's samples.
        gradient_norm: global norm before clipping; NaN or infinite where the step was bad.
        applied: the weights were updated.
        forward_seconds, backward_seconds, optimizer_seconds: wall time. On a GPU kernels run behind the calls, so that only their sum,
            which ends with the norm's read-back, means something there.
    """

    loss_sum: float
    correct: int
    samples: int
    gradient_norm: float
    applied: bool
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float


class StepRunner:
    """Runs optimizer steps on a model."""

    def __init__(
        self,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        device: torch.device,
        clip_norm: float | None,
        seed: int,
        rank: int,
        world: int,
        keeps_buffers: bool,
    ) -> None:
        """Args beyond the obvious: `keeps_buffers` puts batch norm's statistics back after a step that was not applied."""
        self._model = model
        self._optimizer = optimizer
        self._precision = precision
        self._device = device
        self._clip_norm = clip_norm
        self._seed = seed
        self._rank = rank
        self._world = world
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = list(model.buffers()) if keeps_buffers else []
        self._kept = [torch.empty_like(b) for b in self._buffers]

    def run(self, step: int, micro_batches: list[Batch], *, global_count: int) -> StepResult:
        """Do optimizer step number `step` (1-based) on this rank's `micro_batches` of a global batch of `global_count` samples.

        A step whose gradient is not finite leaves the weights as they are and says so by `applied`.
        """
        losses, rights = list[Tensor](), list[Tensor]()
        forward_seconds = backward_seconds = 0.0
        self._optimizer.zero_grad(set_to_none=True)
        _copy_all(self._kept, self._buffers)
        last = len(micro_batches) - 1
        for micro, batch in enumerate(micro_batches):
            seed_step(self._seed, step, micro, self._rank)
            with self._sync_only_if(is_last=micro == last):
                started = time.perf_counter()
                loss, right = self._forward(batch)
                forwarded = time.perf_counter()
                self._precision.backward(loss * (self._world / global_count))
                backward_seconds += time.perf_counter() - forwarded
            forward_seconds += forwarded - started
            losses.append(loss.detach())
            rights.append(right)
        started = time.perf_counter()
        norm, applied = self._apply()
        if not applied:
            _copy_all(self._buffers, self._kept)
        return StepResult(
            # Read here, behind the norm that has waited for the device already, and not micro-batch by micro-batch.
            loss_sum=sum(map(float, losses)),
            correct=sum(map(int, rights)),
            samples=sum(batch.count for batch in micro_batches),
            gradient_norm=norm,
            applied=applied,
            forward_seconds=forward_seconds,
            backward_seconds=backward_seconds,
            optimizer_seconds=time.perf_counter() - started,
        )

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs = batch.inputs.to(self._device, non_blocking=True)
        labels = batch.labels[: batch.count].to(self._device, non_blocking=True)
        with self._precision.autocast():
            logits = self._model(inputs)[: batch.count]
        loss = cross_entropy(logits.float(), labels, reduction="sum")
        return loss, (logits.detach().argmax(dim=1) == labels).sum()

    def _sync_only_if(self, *, is_last: bool) -> contextlib.AbstractContextManager[None]:
        if isinstance(self._model, DistributedDataParallel) and not is_last:
            return self._model.no_sync()
        return contextlib.nullcontext()

    def _apply(self) -> tuple[float, bool]:
        self._precision.unscale_(self._optimizer)
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm_tensor = nn.utils.get_total_norm(gradients)
        norm = float(norm_tensor)
        if not math.isfinite(norm):
            # Under fp16 the scaler has to see the step to lower its scale; it skips the update itself.
            return norm, self._precision.step(self._optimizer) if self._precision.scales_gradients else False
        if self._clip_norm is not None and norm > self._clip_norm:
            nn.utils.clip_grads_with_norm_(self._parameters, self._clip_norm, norm_tensor)
        return norm, self._precision.step(self._optimizer)


def _copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
