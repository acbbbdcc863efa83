"""PowerSGD (Vogels et al., arXiv:1905.13727): torch's hook, with state that can be saved, and that a skipped step leaves as it was.

In place of the gradient M of a weight, n x m, the ranks sum P = M Q, n x r, and then Mᵀ P, m x r, of which the product is an approximation
of the mean gradient. What it misses is each rank's error, and is added to its next gradient (error feedback); the newest Mᵀ P is the next
Q (warm start), equal on all ranks. torch keeps both by bucket. Here they are saved by weight, so that a run may resume with buckets of
another size, another rank of the matrices, and another number of workers:

* Everything is linear up to the mean over the ranks, so only the mean of the errors has an effect. A checkpoint has the error of every
  rank, for bit-exact resumption; another number of ranks starts with the mean.
* The number of the step, and the seed of the first Q, are functions of the step and the run's seed, and no state.
* Under fp16 an error has the scale of the loss, and is rescaled with it.
"""
# DDP compares the annotations of a hook as types: no `from __future__ import annotations` here.

import logging
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as torchs
from torch.distributed.device_mesh import init_device_mesh
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from training.checkpoint.sharding import NamedTensors
from training.communication.ranks import of_all_ranks
from training.communication.wire import factor_shape
from training.config.schema import CommunicationSettings
from training.errors import SettingsError

_EPSILON = 1e-8
"""Added to the norm of a column of Q or P: that of a layer without a gradient is 0."""

logging.getLogger(torchs.__name__).setLevel(logging.WARNING)  # it repeats the settings, and reports every bucket


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """The state before a step, which does not change its tensors."""

    errors: dict[int, Tensor]
    factors: dict[int, Tensor]
    buckets: dict[int, list[Tensor]]


class PowerSgd:
    """The communication hook of a `DistributedDataParallel`, and its state."""

    def __init__(self, settings: CommunicationSettings, *, seed: int, undoes: bool) -> None:
        """Prepare the hook.

        Args:
            settings: of the run.
            seed: of the run.
            undoes: steps may be skipped; costs the memory of one more gradient during a step.
        """
        self._settings = settings
        self._seed = seed
        self._undoes = undoes
        self._state = torchs.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=settings.rank,
            start_powerSGD_iter=settings.start_step,
            min_compression_rate=settings.min_compression_rate,
            use_error_feedback=settings.error_feedback,
            warm_start=True,  # `start_step` forgets the matrices: torch would when a bucket is done, and its other buckets need them
            orthogonalization_epsilon=_EPSILON,
        )
        self._names: dict[Tensor, str] = {}
        self._buckets: dict[int, list[Tensor]] = {}
        self._loaded_errors: NamedTensors = {}
        self._loaded_factors: NamedTensors = {}
        self._kept: _Kept | None = None
        self._scale = 1.0

    def attach(self, parallel: DistributedDataParallel, module: nn.Module) -> None:
        """Become the hook of `parallel`, which wraps `module`. Every rank calls it.

        Raises:
            SettingsError: a weight is a single value without a dimension, which torch's hook cannot handle.
        """
        trained: dict[Tensor, str] = {
            parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad
        }
        if scalars := [name for parameter, name in trained.items() if parameter.dim() == 0]:
            raise SettingsError(
                f"communication.hook=powersgd: weight {scalars[0]} of the model has no dimension",
                remedy="give it the shape (1,), or set communication.hook to none, fp16 or bf16",
            )
        self._names.update(trained)
        self._mesh = init_device_mesh(next(iter(trained)).device.type, (dist.get_world_size(),))
        parallel.register_comm_hook(self, PowerSgd.reduce)

    def reduce(self, bucket: GradBucket) -> Future[Tensor]:
        """The approximate mean of a bucket over the ranks; DDP calls it."""
        index = bucket.index()
        if index not in self._buckets:
            self._buckets[index] = bucket.parameters()
            self._use_loaded(index)
        reduced: Future[Tensor] = torchs.powerSGD_hook(self._state, bucket)
        if not bucket.buffer().is_cuda:
            # Gloo has two threads for its all-reduces and for what torch's hook does, and waits for, after each of them: buckets at the
            # same time would send in another order on every rank, and wait for each other's threads.
            reduced.wait()
        return reduced

    def start_step(self, step: int, *, scale: float) -> None:
        """Prepare optimizer step `step`, counted from 1, whose loss is multiplied by `scale`."""
        state = self._state
        state.iter = step - 1
        state.rng = np.random.RandomState(np.frombuffer(struct.pack("<2Q", self._seed, step), dtype=np.uint32))
        if scale != self._scale:
            for error in (*state.error_dict.values(), *self._loaded_errors.values()):
                error.mul_(scale / self._scale)
            self._scale = scale
        if not self._settings.warm_start:
            state.p_memory_dict.clear()
            state.q_memory_dict.clear()
        if self._undoes:
            factors = {index: factor.clone() for index, factor in state.q_memory_dict.items()}
            self._kept = _Kept(errors=dict(state.error_dict), factors=factors, buckets=dict(self._buckets))

    def end_step(self, *, applied: bool) -> None:
        """Keep the errors of a step, or forget them if it was not applied: those of an infinite gradient are not finite."""
        if applied:
            self._loaded_errors.clear()
            self._loaded_factors.clear()
        elif self._kept is not None:
            state, kept = self._state, self._kept
            state.error_dict, state.q_memory_dict, self._buckets = kept.errors, kept.factors, kept.buckets
            state.p_memory_dict = {index: state.p_memory_dict[index] for index in kept.factors}
        self._kept = None

    def state_dict(self) -> dict[str, Any]:
        """Errors as `error/weight`, (ranks, *shape of the weight) and sharded over the ranks; Q as `factor/weight`, (m, r); the loss scale.

        Empty before PowerSGD has started.
        """
        errors, factors = dict(self._loaded_errors), dict(self._loaded_factors)
        for index, bucket in self._buckets.items():
            if (error := self._state.error_dict.get(index)) is not None:
                pieces = torch.split(error, [parameter.numel() for parameter in bucket])
                errors |= {self._names[p]: _shaped(piece, p) for p, piece in zip(bucket, pieces, strict=True)}
            if (factor := self._state.q_memory_dict.get(index)) is not None and self._settings.warm_start:
                shapes = self._factor_shapes(bucket)
                pieces = torch.split(factor, [math.prod(shape) for shape in shapes.values()])
                factors |= {
                    name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
                }
        if not errors and not factors:
            return {}
        return {
            "scale": self._scale,
            **{f"error/{name}": of_all_ranks(errors[name], self._mesh) for name in sorted(errors)},
            **{f"factor/{name}": factors[name] for name in sorted(factors)},
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Load this rank's errors, or the mean of those of another number of ranks, and the Qs, as far as the settings use them."""
        self._scale = float(state_dict["scale"])
        for key, value in state_dict.items():
            kind, _, name = key.partition("/")
            if kind == "error" and self._settings.error_feedback:
                is_own = len(value) == dist.get_world_size()
                self._loaded_errors[name] = value[dist.get_rank()].clone() if is_own else value.mean(0)
            elif kind == "factor" and self._settings.warm_start:
                self._loaded_factors[name] = value

    def _use_loaded(self, index: int) -> None:
        """Give torch the loaded state of a bucket, whose weights are known once DDP has filled it."""
        bucket, state = self._buckets[index], self._state
        names = [self._names[parameter] for parameter in bucket]
        if all(name in self._loaded_errors for name in names):
            pieces = [_flat(self._loaded_errors[name], like=p) for name, p in zip(names, bucket, strict=True)]
            state.error_dict[index] = torch.cat(pieces)
        shapes = self._factor_shapes(bucket)
        loaded = {name: self._loaded_factors[name] for name in shapes if name in self._loaded_factors}
        if shapes and {name: tuple(factor.shape) for name, factor in loaded.items()} == shapes:
            like = bucket[0]
            state.q_memory_dict[index] = torch.cat([factor.flatten() for factor in loaded.values()]).to(like.device)
            rows = sum(p.shape[0] * shapes[name][1] for p, name in zip(bucket, names, strict=True) if name in shapes)
            state.p_memory_dict[index] = like.new_empty(rows)

    def _factor_shapes(self, bucket: Iterable[Tensor]) -> dict[str, tuple[int, int]]:
        """The shapes of the Qs of a bucket by weight, in torch's order: equal matrices follow each other."""
        by_matrix: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}
        for parameter in bucket:
            if (shape := factor_shape(parameter, self._settings)) is not None:
                rows, columns, rank = shape
                by_matrix.setdefault((rows, columns), {})[self._names[parameter]] = (columns, rank)
        return {name: shape for equal in by_matrix.values() for name, shape in equal.items()}


def _shaped(piece: Tensor, parameter: Tensor) -> Tensor:
    """A part of a bucket as a tensor of its weight's shape: DDP lays gradients out in memory as the weights are."""
    return piece.as_strided(parameter.shape, parameter.stride(), piece.storage_offset()).contiguous()


def _flat(value: Tensor, *, like: Tensor) -> Tensor:
    """The inverse of `_shaped`."""
    placed = torch.empty_like(like, requires_grad=False).copy_(value)
    return placed.as_strided((like.numel(),), (1,))
