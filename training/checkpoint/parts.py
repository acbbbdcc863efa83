"""The parts of a run's tensors that each rank writes, planned by torch.distributed.checkpoint (DCP).

The files are those of DCP's `HuggingFaceStorageWriter(save_distributed=True)`: safetensors whose header says where in the whole tensor
each part begins, so DCP's `HuggingFaceStorageReader` reads them, and any program that reads safetensors can open one. We write them
ourselves: DCP's writer builds each file in memory first, and does not make it durable before it has its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch.distributed as dist
from torch.distributed.checkpoint._hf_utils import (
    CUSTOM_METADATA_KEY,
    DCP_VERSION_KEY,
    FORMAT_KEY,
    FORMAT_VALUE,
    HF_DCP_VERSION,
    SAVED_OFFSETS_KEY,
)
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan

from training.checkpoint.manifest import TENSOR_SUFFIX, part_file
from training.checkpoint.sharding import NamedTensors, own_part

_SEPARATOR = ":"
"""Between the name of a state and that of its tensor; no state's name has it."""

Layout = list[tuple[str, object]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a tensor that this rank writes: its file, its name there, and where in the whole tensor it begins."""

    file: str
    key: str
    source: tuple[str, str]
    offsets: tuple[int, ...]


def layout_of(tensors: Mapping[str, NamedTensors]) -> Layout:
    """What a plan depends on: names, shapes and types of the tensors, and how they are sharded."""
    return [
        (f"{file}{_SEPARATOR}{key}", (value.shape, value.dtype, getattr(value, "placements", None)))
        for file, named in tensors.items()
        for key, value in named.items()
    ]


def plan_parts(tensors: Mapping[str, NamedTensors]) -> list[Part]:
    """Divide the writing of the tensors between the ranks. A collective on the default process group.

    Args:
        tensors: this rank's, by file and name. A sharded one (`DTensor`) is written by all its ranks, one part each; of replicas and of
            plain tensors that several ranks have, the lowest rank writes its own.

    Returns:
        The parts that this rank writes.

    Raises:
        ValueError: the parts of all ranks do not make up whole tensors.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    named = {f"{file}{_SEPARATOR}{key}": value for file, own in tensors.items() for key, value in own.items()}
    # Buffers may differ between the ranks: those of the lowest count.
    planner = DefaultSavePlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False, dedup_save_to_lowest_rank=True
    )
    planner.set_up_planner(named, is_coordinator=rank == 0)
    gathered: list[SavePlan] = [SavePlan([])] * world
    dist.gather_object(planner.create_local_plan(), gathered if rank == 0 else None, dst=0)
    plans: Sequence[SavePlan | ValueError] = []
    if rank == 0:
        try:
            plans, _ = planner.create_global_plan(gathered)
        except ValueError as error:
            plans = [error] * world
    own: list[SavePlan | ValueError] = [SavePlan([])]
    dist.scatter_object_list(own, list(plans) if rank == 0 else None, src=0)
    if isinstance(own[0], ValueError):
        raise own[0]
    return [
        part for item in own[0].items if (part := _part(item.index.fqn, item.index.offset, named, rank)) is not None
    ]


def _part(name: str, offset: Sequence[int] | None, tensors: NamedTensors, rank: int) -> Part | None:
    """The part of a planned item; None for an empty one of a tensor that is not: more ranks than rows share it."""
    tensor = tensors[name]
    if own_part(tensor).numel() == 0 and prod(tensor.shape) > 0:
        return None
    file, _, key = name.partition(_SEPARATOR)
    return Part(
        file=part_file(file.removesuffix(TENSOR_SUFFIX), rank),
        key=key,
        source=(file, key),
        offsets=tuple(offset or ()),
    )


def select(tensors: Mapping[str, NamedTensors], parts: Sequence[Part]) -> dict[str, NamedTensors]:
    """The live parts of this rank's tensors by file and name."""
    selected: dict[str, NamedTensors] = {}
    for part in parts:
        file, key = part.source
        selected.setdefault(part.file, {})[part.key] = own_part(tensors[file][key].detach())
    return selected


def headers(parts: Sequence[Part]) -> dict[str, dict[str, str]]:
    """What DCP writes into the header of each file."""
    offsets: dict[str, dict[str, dict[str, Sequence[int]]]] = {}
    for part in parts:
        offsets.setdefault(part.file, {})[part.key] = {SAVED_OFFSETS_KEY: part.offsets}
    return {
        file: {
            CUSTOM_METADATA_KEY: json.dumps(named),
            DCP_VERSION_KEY: str(HF_DCP_VERSION),
            FORMAT_KEY: FORMAT_VALUE,
        }
        for file, named in offsets.items()
    }
