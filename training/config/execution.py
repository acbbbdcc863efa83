"""The sections that say how it is computed: precision, compute and scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, WithJsonSchema, model_validator

from infra.spec.matching import Matching
from infra.spec.section import Section
from training.config import worker_range
from training.config.values import Timeout
from training.config.variables import Variables


class PrecisionSettings(Section):
    """Number format of the forward and backward pass."""

    mode: Literal["fp32", "bf16", "fp16", "fp8"] = Field(
        "fp32",
        description="fp32 | bf16 (autocast) | fp16 (autocast with a gradient scaler) | fp8 (as bf16, but the linear layers between the "
        "first and the last layer multiply in 8-bit numbers; GPUs from Ada and Hopper on).",
    )
    initial_scale: PositiveFloat = Field(65536.0, description="Initial loss scale of fp16.")


class AllocatorSettings(Section):
    """torch's allocator of GPU memory. Defaults are torch's; its variables in the environment take precedence (`training/allocator.py`)."""

    expandable_segments: bool = Field(
        False, description="Let segments of memory grow: less is lost to fragmentation where the sizes of batches vary."
    )
    max_split_size_mb: Annotated[int, Field(ge=20)] | None = Field(
        None, description="Do not split blocks larger than this, in MiB, against fragmentation by few large tensors."
    )
    garbage_collection_threshold: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Share of compute.memory_fraction from which unused blocks are given back, one by one."
    )


class ComputeSettings(Section):
    """How forward and backward pass are computed; results differ by rounding at most."""

    channels_last: bool = Field(
        False,
        description="Keep images and the weights of convolutions in the memory order that tensor cores want; for models of images.",
    )
    activation_checkpointing: Literal["off", "full", "selective"] = Field(
        "off",
        description="off | full (compute the activations of a block again in the backward pass instead of keeping them: about a third more "
        "time) | selective (all but those of convolutions, matrix products and attention: more memory than full, less time). Same bits.",
    )
    attention: Literal["auto", "flash", "efficient", "math"] = Field(
        "auto",
        description="Kernel of scaled_dot_product_attention: auto (torch chooses) | flash | efficient (GPUs) | math; another than auto is "
        "checked in the first step.",
    )
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="Share of a GPU's memory that a rank may allocate, e.g. where ranks share it; null is all of it.",
    )
    allocator: AllocatorSettings = Field(
        AllocatorSettings(),
        description="torch's allocator of GPU memory: expandable_segments, max_split_size_mb, garbage_collection_threshold.",
    )
    compile: Literal["off", "default", "max-autotune"] = Field(
        "off",
        description="off | default | max-autotune (of `torch.compile`): generate kernels for the model in its first steps, which takes "
        "a minute or more; they are kept with the run.",
    )

    @model_validator(mode="before")
    @classmethod
    def _a_switch_is_full_or_off(cls, data: object) -> object:
        """Settings of a run of an earlier release, which can be resumed, have true or false."""
        if isinstance(data, Mapping) and isinstance(switch := data.get("activation_checkpointing"), bool):
            return {**data, "activation_checkpointing": "full" if switch else "off"}
        return data

    @model_validator(mode="after")
    def _compiled_steps_select_by_themselves(self) -> ComputeSettings:
        if self.activation_checkpointing == "selective" and self.compile != "off":
            raise ValueError(
                f"activation_checkpointing=selective has no use with compile={self.compile}, which computes cheap operators again by "
                "itself; use off or full"
            )
        return self

    @model_validator(mode="after")
    def _garbage_is_collected_below_a_limit(self) -> ComputeSettings:
        if self.allocator.garbage_collection_threshold is not None and self.memory_fraction is None:
            raise ValueError(
                f"allocator.garbage_collection_threshold={self.allocator.garbage_collection_threshold} needs memory_fraction, of "
                "which it is a share; memory_fraction=1.0 is the whole memory"
            )
        return self


class ScaleSettings(Section):
    """Number of processes, devices and launcher."""

    launcher: Literal["ray", "torchrun", "plain"] = Field(
        "ray", description="ray (Ray Train) | torchrun | plain (one process)."
    )
    workers: Annotated[PositiveInt, WithJsonSchema(worker_range.JSON_SCHEMA)] = Field(
        2,
        description="Number of ranks (world size); {min: 2, max: 8} or 2-8 is an elastic run, with as many of them as there is room for.",
    )
    min_workers: PositiveInt | None = Field(
        None, description="Fewest ranks of an elastic run, whose workers are the most; null is a run of just as many."
    )
    gpu: bool = Field(False, description="One GPU per rank and NCCL; false uses CPUs and gloo.")
    cpus_per_worker: PositiveInt = Field(1, description="CPUs reserved per rank; also its number of torch threads.")
    nodes: PositiveInt = Field(1, description="Number of nodes (torchrun), with equal numbers of workers.")
    node_rank: NonNegativeInt = Field(0, description="Rank of this node (torchrun).")
    rendezvous: Annotated[str, Matching(r"^[^:\s]+:\d{1,5}$", "must be HOST:PORT")] | None = Field(
        None, description="host:port of the rendezvous (torchrun, nodes > 1)."
    )
    environment: Variables = Field(
        default_factory=dict,
        description="Environment variables of every rank, e.g. NCCL_DEBUG, set before torch is imported; they replace the process's.",
    )
    address: str | None = Field(None, description="Address of a running Ray cluster; null starts one on this machine.")
    start_timeout: Timeout = Field(
        120.0, description="Timeout for the start of Ray, and for that of all ranks, in seconds."
    )
    collective_timeout: Timeout = Field(300.0, description="Timeout of a collective, in seconds.")
    max_restarts: NonNegativeInt = Field(
        2,
        description="Times a driver restarts the ranks from the newest checkpoint after lost processes, lost nodes, broken connections and "
        "hangs, counted for each of these causes; recovery says when a count begins anew, and has the other causes. 0 restarts nothing.",
    )

    @model_validator(mode="before")
    @classmethod
    def _workers_may_be_a_range(cls, data: object) -> object:
        return worker_range.expand(data) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _the_range_fits(self) -> ScaleSettings:
        if self.min_workers is None:
            return self
        if self.min_workers > self.workers:
            raise ValueError(
                f"workers={self.min_workers}-{self.workers}: the fewest workers must not be more than the most; "
                f"write {self.workers}-{self.min_workers}"
            )
        if self.launcher != "ray":
            raise ValueError(
                f"workers={self.min_workers}-{self.workers} needs launcher=ray, which adds and releases workers, got "
                f"launcher={self.launcher}; write workers={self.workers}"
            )
        return self

    @property
    def is_elastic(self) -> bool:
        """Whether the number of workers may change while the run trains."""
        return self.min_workers is not None and self.min_workers < self.workers

    @model_validator(mode="after")
    def _launcher_fits(self) -> ScaleSettings:
        if self.launcher == "plain" and self.workers != 1:
            raise ValueError(
                f"launcher=plain runs one process, got workers={self.workers}; use launcher=torchrun or ray"
            )
        if self.nodes > 1 and self.launcher != "torchrun":
            raise ValueError(f"nodes={self.nodes} is a setting of launcher=torchrun, got launcher={self.launcher}")
        if self.workers % self.nodes:
            raise ValueError(f"workers={self.workers} must be a multiple of nodes={self.nodes}")
        if self.nodes > 1 and self.rendezvous is None:
            raise ValueError(f"nodes={self.nodes} needs rendezvous=host:port of the machine with node_rank 0")
        if self.node_rank >= self.nodes:
            raise ValueError(f"node_rank={self.node_rank} must be smaller than nodes={self.nodes}")
        if self.address is not None and self.launcher != "ray":
            raise ValueError(f"address={self.address} is a setting of launcher=ray, got launcher={self.launcher}")
        return self
