"""Pipeline parallelism: the model is cut into stages on ranks of their own, through which micro-batches flow.

The ranks form a mesh of data-parallel groups x stages: rank = group x stages + stage, so that the stages of one copy of the model are
neighbours. Each rank keeps the weights, gradients and optimizer state of its stages, about 1 / stages of the model's. Activations and
their gradients go from stage to stage with every micro-batch; after the last one each stage sums its gradients over the groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from training.checkpoint.state import ModelState, OptimizerState
from training.checkpoint.stateful import Stateful
from training.config.schema import StrategySettings
from training.errors import SettingsError
from training.models.trial_copy import copied
from training.passes import Passes, StepContext
from training.precision import Precision
from training.strategies.buffers import FromBuffersOfRank0, copy_from_rank_0
from training.strategies.schedule import PipelinePasses, StageRunner
from training.strategies.skeleton import skeleton_of
from training.strategies.stages import Stage, StageModule, divide, keep_only
from training.strategies.strategy import MakeOptimizer
from training.strategies.update import clip_and_step

_BUCKET_BYTES = 25 * 2**20
"""Gradients that are summed over the groups at once, like DDP's buckets."""


class Pipeline:
    """The stages of this rank and their optimizer; together the ranks of a group train the model of one process."""

    computes_together = False
    pass_order = 0
    has_whole_state = False
    shards_state = True

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        *,
        settings: StrategySettings,
        device: torch.device,
        model: str,
    ) -> None:
        """Keep this rank's part of a module.

        Args:
            module: the whole model, the same on every rank; emptied of what other ranks have.
            make_optimizer: of this rank's parameters.
            settings: stages and schedule.
            device: of this rank.
            model: its name in the settings, for errors.

        Raises:
            SettingsError: the model cannot be divided into so many stages.
        """
        ranks, per_rank = settings.stages, settings.stages_per_rank
        mesh = init_device_mesh(
            device.type, (dist.get_world_size() // ranks, ranks), mesh_dim_names=("replicate", "stage")
        )
        self._replicas, self._pipeline = mesh.get_group("replicate"), mesh.get_group("stage")
        self._rank = mesh.get_local_rank("stage")
        self._is_first_group = mesh.get_local_rank("replicate") == 0
        stages = divide(module, ranks * per_rank, model=model)
        # Stage i is on rank i modulo the ranks, as torch's schedules expect.
        stages_of = [stages[rank::ranks] for rank in range(ranks)]
        own = stages_of[self._rank]
        self._skeleton = skeleton_of(module)
        self._owners = _owners(module, stages_of)
        self._shared = _SharedParameters(module, stages_of, groups=mesh.mesh.tolist())
        keep_only(module, own)
        if not any(one.requires_grad for one in module.parameters()):
            raise SettingsError(
                f"strategy.name=pipeline: stage {self._rank + 1} of {ranks} has no weight of model.name={model} that is trained",
                remedy="use fewer strategy.stages, or train more of the model",
            )
        self.module = module
        self.optimizer = make_optimizer(module)
        self.runner = StageRunner(
            modules={self._rank + ranks * index: StageModule(stage, module) for index, stage in enumerate(own)},
            stages=len(stages),
            group=self._pipeline,
            device=device,
        )
        sizes = " + ".join(f"{stage.parameters:,}" for stage in stages)
        self.note = f"pipelines of {ranks} ranks, {settings.schedule}: stages of {sizes} parameters"

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return sum(one.numel() for one in self._skeleton.parameters())

    def passes(self, context: StepContext) -> Passes:
        """A schedule of the micro-batches over the stages."""
        passes = PipelinePasses(self.runner, context, skeleton=self._skeleton, sum_gradients=self._sum_gradients)
        return FromBuffersOfRank0(passes, self.module, self._replicas)

    def infer(self, inputs: Tensor) -> Tensor | None:
        """The outputs of the whole model on the rank of the last stage, None on those before it."""
        return self.runner.infer(inputs)

    def compile(self, mode: str) -> None:
        """Refused by the settings."""
        raise AssertionError(f"compute.compile={mode} under a pipeline")

    @property
    def has_gradients(self) -> bool:
        """Whether any weight of this rank has a gradient."""
        return any(one.grad is not None for one in self.module.parameters())

    def update(self, precision: Precision, clip_norm: float | None) -> tuple[float, bool]:
        """Clip by the norm, and step."""
        return clip_and_step(self, precision, clip_norm)

    def gradient_norm(self) -> Tensor:
        """The L2 norm over the gradients of all stages; one that several ranks have counts once."""
        counted = [
            one.grad
            for name, one in self.module.named_parameters()
            if one.grad is not None and self._owners[name] == self._rank
        ]
        # In float64: the squares of float32 norms overflow at 1e19.
        squared = (
            nn.utils.get_total_norm(counted).double().square() if counted else torch.zeros((), dtype=torch.float64)
        )
        squared = squared.to(self.runner.device)
        dist.all_reduce(squared, group=self._pipeline)
        return squared.sqrt().float()

    def clip_gradients(self, limit: float, norm: Tensor) -> None:
        """Scale this rank's gradients in place."""
        nn.utils.clip_grads_with_norm_(list(self.module.parameters()), limit, norm)

    def synchronize_buffers(self) -> None:
        """Copy the buffers of the first group's stage to those of the others."""
        copy_from_rank_0(self.module, self._replicas)

    @torch.no_grad()
    def whole_module(self) -> nn.Module:
        """On rank 0 the whole model in host memory, gathered from the first group; on its peers this rank's part."""
        if not self._is_first_group:
            return self.module
        own = dict([*self.module.named_parameters(), *self.module.named_buffers()])
        values: dict[int, Tensor] = {}
        for name, empty in (*self._skeleton.named_parameters(), *self._skeleton.named_buffers()):
            owner = self._owners[name]
            if self._rank == 0:
                value = (own[name].detach().clone() if owner == 0 else self._received(empty, owner)).cpu()
                values[id(empty)] = (
                    nn.Parameter(value, empty.requires_grad) if isinstance(empty, nn.Parameter) else value
                )
            elif self._rank == owner:
                dist.send(own[name].detach().contiguous(), group=self._pipeline, group_dst=0)
        return copied(self._skeleton, values) if self._rank == 0 else self.module

    def states(self) -> dict[str, Stateful]:
        """The state of this rank's stages and of their optimizer, under the whole model's names."""
        return {"model": ModelState(self.module), "optimizer": OptimizerState(self.optimizer, self.module)}

    def _received(self, like: Tensor, owner: int) -> Tensor:
        value = torch.empty(like.shape, dtype=like.dtype, device=self.runner.device)
        dist.recv(value, group=self._pipeline, group_src=owner)
        return value

    @torch.no_grad()
    def _sum_gradients(self) -> None:
        """Sum over the groups, then between the stages that share a parameter."""
        gradients = [one.grad for one in self.module.parameters() if one.grad is not None]
        if dist.get_world_size(self._replicas) > 1:
            for bucket in _buckets(gradients):
                flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
                dist.all_reduce(flat, group=self._replicas)
                parts = torch.split(flat, [gradient.numel() for gradient in bucket])
                for gradient, summed in zip(bucket, parts, strict=True):
                    gradient.copy_(summed.view_as(gradient))
        self._shared.sum_gradients(self.module)


class _SharedParameters:
    """Parameters that stages on several ranks use: each has a copy, and all copies get the sum of their gradients.

    Equal weights with equal gradients and optimizer state stay equal, bit for bit.
    """

    def __init__(self, module: nn.Module, stages_of: Sequence[Sequence[Stage]], *, groups: list[list[int]]) -> None:
        """Make a process group for each set of ranks that share; collective, in the same order on every rank.

        Args:
            module: the whole model.
            stages_of: the stages of each rank of a pipeline.
            groups: global ranks of each pipeline, by rank in it.
        """
        named = defaultdict[tuple[int, ...], list[str]](list)
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            users = tuple(rank for rank, stages in enumerate(stages_of) if _has(stages, parameter))
            if len(users) > 1:
                named[users].append(name)
        self._names_of: list[tuple[dist.ProcessGroup, list[str]]] = []
        for users, names in sorted(named.items()):
            for ranks in groups:
                members = [ranks[user] for user in users]
                group = dist.new_group(members)
                if dist.get_rank() in members:
                    assert isinstance(
                        group, dist.ProcessGroup
                    )  # torch's type has a number for ranks that are not members
                    self._names_of.append((group, names))

    def sum_gradients(self, module: nn.Module) -> None:
        """Sum the gradients of every shared parameter of this rank with those of its copies.

        A part may use a parameter in evaluation only; its gradient is that of the others then, and none if no part has one.
        """
        for group, names in self._names_of:
            weights = [module.get_parameter(name) for name in names]
            having = torch.tensor([float(one.grad is not None) for one in weights], device=weights[0].device)
            dist.all_reduce(having, group=group)
            for weight, users in zip(weights, having.tolist(), strict=True):
                if users:
                    weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                    dist.all_reduce(weight.grad, group=group)


def _owners(module: nn.Module, stages_of: Sequence[Sequence[Stage]]) -> dict[str, int]:
    """The rank of a pipeline that counts and exports each parameter and buffer: the first that has it."""
    return {
        name: next(rank for rank, stages in enumerate(stages_of) if _has(stages, tensor))
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def _has(stages: Sequence[Stage], tensor: Tensor) -> bool:
    return any(id(tensor) in stage.tensors for stage in stages)


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive gradients of the same type, in buckets of about the same size."""
    bucket: list[Tensor] = []
    size = 0
    for gradient in gradients:
        if bucket and (size + gradient.nbytes > _BUCKET_BYTES or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        yield bucket
