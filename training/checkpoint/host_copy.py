"""Copies of tensors in host memory, written to files as safetensors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, TensorSpec, serialize_file

from training.checkpoint.sharding import NamedTensors
from training.checkpoint.store import FileWriter

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


class HostCopy:
    """Copies of a run's tensors in host memory, allocated once; pinned where the tensors are on a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[str, NamedTensors] = {}
        self._layout = _layout({})

    @property
    def nbytes(self) -> int:
        """Size of the copies in bytes."""
        return sum(buffer.nbytes for file in self._buffers.values() for buffer in file.values())

    def allocate(self, tensors: Mapping[str, NamedTensors]) -> None:
        """Allocate buffers for tensors like these and touch every page, so that the first copy need not."""
        self._buffers = {
            file: {
                # The memory format is kept: a copy that also transposes would be many times slower.
                name: torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False).zero_()
                for name, tensor in named.items()
            }
            for file, named in tensors.items()
        }
        self._layout = _layout(tensors)

    def fill(self, tensors: Mapping[str, NamedTensors]) -> None:
        """Copy the tensors; when this returns they may change. Allocates if the buffers do not fit."""
        if _layout(tensors) != self._layout:
            self.allocate(tensors)
        sources = [tensor for named in tensors.values() for tensor in named.values()]
        if not sources:  # of a rank whose state others write
            return
        buffers = [self._buffers[file][name] for file, named in tensors.items() for name in named]
        with torch.no_grad():
            # One call, not one per tensor: each call releases the GIL, which a busy writer may hold for up to 5 ms.
            torch._foreach_copy_(buffers, sources, non_blocking=True)
        for device in {tensor.device for tensor in sources if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()

    def writers(self, headers: Mapping[str, Mapping[str, str]]) -> dict[str, FileWriter]:
        """The writer of each file, by name. The copies must not change until it has run.

        Args:
            headers: what a file's header holds besides the tensors, by file.
        """
        return {file: _safetensors_writer(named, headers.get(file)) for file, named in self._buffers.items()}


def _layout(tensors: Mapping[str, NamedTensors]) -> list[tuple[str, str, torch.Size, torch.dtype]]:
    return [(file, name, t.shape, t.dtype) for file, named in tensors.items() for name, t in named.items()]


def _safetensors_writer(named: NamedTensors, header: Mapping[str, str] | None) -> FileWriter:
    def write(path: Path) -> None:
        packed = {name: tensor.contiguous() for name, tensor in named.items()}
        # safetensors.torch.save_file takes 30 microseconds of Python per tensor, in which the loop cannot run, to wrap it in NumPy
        # and to find shared memory. These tensors share none and live until the file is written.
        specs = {
            name: TensorSpec(
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tensor.shape,
                data_ptr=tensor.data_ptr(),
                data_len=tensor.nbytes,
            )
            for name, tensor in packed.items()
        }
        try:
            serialize_file(specs, path, None if header is None else dict(header))
        except SafetensorError as error:
            # The library turns the operating system's errors into text.
            if found := _OS_ERROR.search(str(error)):
                number = int(found[1])
                raise OSError(number, os.strerror(number), str(path)) from error
            raise

    return write
