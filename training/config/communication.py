"""The section that says what the ranks of data parallelism send each other, and when."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from infra.spec.section import Section
from training.config.execution import PrecisionSettings, ScaleSettings
from training.config.strategy import StrategySettings
from training.config.task import EmaSettings, LoopSettings
from training.config.values import Fraction

_POWERSGD = ("rank", "min_compression_rate", "warm_start", "error_feedback")
_OUTER = ("outer_learning_rate", "outer_momentum")
_NOT_OF_LOCAL_STEPS = ("hook", "hierarchical", "shard_optimizer", "static_graph", "sync_batchnorm")


class CommunicationSettings(Section):
    """What the ranks send each other, under strategy.name=ddp with two workers or more."""

    hook: Literal["none", "fp16", "bf16", "powersgd"] = Field(
        "none",
        description="What is sent of a gradient: none (all of it, as it is) | fp16 (half the bytes; above 65504 a step is not finite) | "
        "bf16 (half the bytes, fewer digits) | powersgd (two thin matrices in place of each weight's gradient, arXiv:1905.13727).",
    )
    rank: PositiveInt = Field(
        2, description="Columns of PowerSGD's matrices; more are closer to the gradient, and more bytes."
    )
    start_step: NonNegativeInt = Field(
        100,
        description="Steps that send whole gradients before PowerSGD or local_steps start; about a tenth of the run, and no fewer than "
        "schedule.warmup_steps.",
    )
    min_compression_rate: Annotated[float, Field(ge=1)] = Field(
        2.0, description="Gradients that PowerSGD would not make smaller by this factor are sent whole."
    )
    warm_start: bool = Field(
        True, description="Start PowerSGD's iteration from the matrices of the step before, instead of random ones."
    )
    error_feedback: bool = Field(
        True, description="Add what PowerSGD has not sent to the next gradient; takes the memory of one more gradient."
    )
    hierarchical: bool = Field(
        False,
        description="Sum gradients within each node first, so that its ranks send one gradient between nodes instead of one each; with "
        "hook=none, fp16 or bf16.",
    )
    ranks_per_node: PositiveInt | None = Field(
        None,
        description="Ranks of a node, which are consecutive, for hierarchical and node_steps; null is as many as the launcher has "
        "started on each.",
    )
    local_steps: PositiveInt | None = Field(
        None,
        description="Steps that every rank trains alone before the weights of all ranks are averaged (local SGD, arXiv:1808.07217); null "
        "sums the gradients of every step.",
    )
    node_steps: PositiveInt | None = Field(
        None, description="Steps between averages within a node, more often than local_steps between all ranks."
    )
    outer_optimizer: Literal["none", "nesterov"] = Field(
        "none",
        description="What becomes of the average after local_steps: none (the weights) | nesterov (DiLoCo, arXiv:2311.08105: SGD with "
        "Nesterov momentum moves the weights of the average before towards it; takes the memory of two more models).",
    )
    outer_learning_rate: PositiveFloat = Field(0.7, description="Learning rate of the outer optimizer.")
    outer_momentum: Fraction = Field(0.9, description="Momentum of the outer optimizer.")
    shard_optimizer: bool = Field(
        False,
        description="Keep the optimizer's state of each weight on one rank only, which updates and sends the weight (ZeRO stage 1, "
        "arXiv:1910.02054); the weights are the same.",
    )
    bucket_megabytes: PositiveFloat | None = Field(
        None,
        description="MiB of gradients that are sent at a time, while the backward pass computes the next ones; null is torch's: 1 for the "
        "first, then 25.",
    )
    gradient_as_bucket_view: bool = Field(
        True, description="Keep the gradients in the memory that is sent, instead of copying them there."
    )
    static_graph: bool = Field(
        False,
        description="Every step uses the same weights, in the same way; some may be without a use. The first two steps of a process "
        "send their gradients in one piece, so that with more than two workers a resumed run differs by rounding.",
    )
    unused_parameters: bool = Field(
        False,
        description="Steps may leave weights of the model without a use. Costs a search through the graph of every step; with static_graph "
        "it is not needed.",
    )
    sync_batchnorm: bool = Field(
        False,
        description="Batch norm takes its statistics from the samples of all ranks (GPUs only); for few samples per rank.",
    )

    @model_validator(mode="after")
    def _options_belong_to_powersgd(self) -> CommunicationSettings:
        if self.hook != "powersgd" and (given := sorted(self.changed & set(_POWERSGD))):
            raise ValueError(f"{', '.join(given)}: settings of hook=powersgd, got hook={self.hook}")
        if self.hook != "powersgd" and self.local_steps is None and "start_step" in self.changed:
            raise ValueError(f"start_step: a setting of hook=powersgd and of local_steps, got hook={self.hook}")
        return self

    @model_validator(mode="after")
    def _powersgd_keeps_its_buckets(self) -> CommunicationSettings:
        if self.hook != "powersgd":
            return self
        if self.start_step < 2:
            raise ValueError(f"start_step={self.start_step}: hook=powersgd needs 2 or more, as torch's does")
        if self.static_graph:
            raise ValueError(
                "static_graph=true groups the gradients anew after two steps, and hook=powersgd keeps state of the groups; "
                "set static_graph=false"
            )
        if self.hierarchical:
            raise ValueError("hierarchical=true sums gradients, and hook=powersgd matrices; use one of them")
        return self

    @model_validator(mode="after")
    def _a_static_graph_is_not_searched(self) -> CommunicationSettings:
        if self.static_graph and self.unused_parameters:
            raise ValueError(
                "unused_parameters=true is for steps that use other weights each, and static_graph=true for the same ones"
            )
        return self

    @model_validator(mode="after")
    def _options_belong_to_local_steps(self) -> CommunicationSettings:
        if self.outer_optimizer == "none" and (given := sorted(self.changed & set(_OUTER))):
            raise ValueError(f"{', '.join(given)}: settings of outer_optimizer=nesterov, got outer_optimizer=none")
        if self.local_steps is None:
            if given := sorted(self.changed & {"node_steps", "outer_optimizer"}):
                raise ValueError(f"{', '.join(given)}: settings of a run with local_steps, which is not set")
            return self
        if given := sorted(self.changed & set(_NOT_OF_LOCAL_STEPS)):
            raise ValueError(
                f"{given[0]}={getattr(self, given[0])} is for ranks that share every step, and local_steps={self.local_steps} lets each "
                "train alone; use one of them"
            )
        if self.local_steps == 1 and self.outer_optimizer == "none":
            raise ValueError(
                "local_steps=1 sends the weights at every step, which are as large as the gradients; leave it out, or use 2 or more"
            )
        return self

    @model_validator(mode="after")
    def _nodes_average_more_often(self) -> CommunicationSettings:
        if self.ranks_per_node is not None and not self.hierarchical and self.node_steps is None:
            raise ValueError(
                f"ranks_per_node={self.ranks_per_node}: a setting of hierarchical=true and of node_steps; set one of them"
            )
        node, local = self.node_steps, self.local_steps
        if node is None or local is None or (node < local and local % node == 0):
            return self
        nearest = max(node, local - local % node)
        advice = f"local_steps={2 * node}" if nearest == node else f"local_steps={nearest}"
        raise ValueError(
            f"local_steps={local} must be a multiple of node_steps={node}, twice or more; nearest: {advice}"
        )

    @property
    def changed(self) -> set[str]:
        """Settings that do not have their default."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}


def check_communication(
    communication: CommunicationSettings,
    *,
    strategy: StrategySettings,
    scale: ScaleSettings,
    loop: LoopSettings,
    precision: PrecisionSettings,
    ema: EmaSettings,
) -> None:
    """Check what the ranks send each other against the other sections.

    Raises:
        ValueError: it does not fit; names the keys, the values and what works.
    """
    given = sorted(communication.changed)
    if not given:
        return
    first = f"communication.{given[0]}={getattr(communication, given[0])}"
    if strategy.name != "ddp":
        raise ValueError(
            f"{first} is a setting of strategy.name=ddp, got {strategy.name}; leave it out, or use strategy.name=ddp"
        )
    if scale.workers == 1:
        raise ValueError(
            f"{first} needs scale.workers=2 or more: one worker sends no gradients; leave it out, or use scale.workers=2"
        )
    if communication.static_graph and loop.accumulation > 1:
        raise ValueError(
            f"communication.static_graph=true needs loop.accumulation=1, got {loop.accumulation}: DDP learns the graph in a step "
            "whose every backward pass sends gradients"
        )
    if communication.sync_batchnorm and not scale.gpu:
        raise ValueError(
            "communication.sync_batchnorm=true needs scale.gpu=true: torch synchronizes batch norm on GPUs only"
        )
    if communication.ranks_per_node is not None:
        _check_nodes(communication.ranks_per_node, scale.workers)
    if communication.local_steps is not None:
        _check_local_steps(communication.local_steps, loop=loop, precision=precision, ema=ema)


def _check_nodes(ranks: int, workers: int) -> None:
    if workers % ranks == 0 and 1 < ranks < workers:
        return
    fitting = [number for number in range(2, workers) if workers % number == 0]
    nearest = min(fitting, key=lambda number: abs(number - ranks), default=None)
    advice = "leave out hierarchical and node_steps" if nearest is None else f"nearest: {nearest}"
    raise ValueError(
        f"communication.ranks_per_node={ranks} must divide scale.workers={workers} into two nodes or more, of two ranks or more; {advice}"
    )


def _check_local_steps(local_steps: int, *, loop: LoopSettings, precision: PrecisionSettings, ema: EmaSettings) -> None:
    """Refuse what needs all ranks at every step."""
    first = f"communication.local_steps={local_steps} lets every rank train alone"
    if precision.mode == "fp16":
        raise ValueError(f"{first}, with a loss scale of its own under precision.mode=fp16; use bf16 or fp32")
    if loop.nonfinite == "skip":
        raise ValueError(f"{first}, and each would skip other steps under loop.nonfinite=skip; use stop")
    if ema.decay is not None:
        raise ValueError(f"{first}, and ema.decay={ema.decay} averages weights that all ranks have; leave it out")
