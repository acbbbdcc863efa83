"""Reads tensors of a checkpoint: whole ones and parts of several ranks alike, and of them only what is asked for.

DCP's `HuggingFaceStorageReader` reads slices of safetensors files, whose headers say which part of a tensor each has. A file without
such a header has whole tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from training.checkpoint.sharding import NamedTensors


class _OnlyFiles(FileSystem):
    """A file system whose folders hold the given files only: DCP reads all of a folder."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [str(file) for file in files]

    def ls(self, path: object) -> list[str]:
        """The files."""
        del path
        return self._files


class SavedTensors:
    """The tensors of one state. Opening it reads the headers of its files."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Args: `files` are all the files of the state, at least one."""
        self._reader = HuggingFaceStorageReader(str(files[0].parent))
        self._reader.fs = _OnlyFiles(files)
        self._metadata = self._reader.read_metadata()
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=False)

    def describe(self) -> NamedTensors:
        """The whole tensors by name, without content (on the device `meta`)."""
        return {
            name: torch.empty(saved.size, dtype=saved.properties.dtype, device="meta")
            for name, saved in self._metadata.state_dict_metadata.items()
            if isinstance(saved, TensorStorageMetadata)
        }

    def read_into(self, tensors: NamedTensors) -> None:
        """Fill tensors by name: plain ones wholly, of sharded ones (`DTensor`) this rank's part. Communicates nothing."""
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(dict(tensors), self._metadata, is_coordinator=False)
        plan = planner.finish_plan(planner.create_local_plan())
        self._reader.read_data(plan, planner).wait()
