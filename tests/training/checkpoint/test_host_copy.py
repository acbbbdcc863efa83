"""Copies in host memory: what they hold, and how errors of the file system are raised."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from training.checkpoint.host_copy import HostCopy


def filled(**tensors: torch.Tensor) -> HostCopy:
    copy = HostCopy()
    copy.fill({"a.safetensors": tensors})
    return copy


def test_a_copy_is_written_as_it_was_filled(tmp_path: Path) -> None:
    live = torch.arange(6.0).reshape(2, 3)
    copy = filled(weight=live, transposed=live.T)
    expected = live.clone()
    live.zero_()
    copy.writers({})["a.safetensors"](tmp_path / "a.safetensors")
    written = load_file(tmp_path / "a.safetensors")
    assert torch.equal(written["weight"], expected)
    assert torch.equal(written["transposed"], expected.T)
    assert copy.nbytes == 48


def test_an_error_of_the_file_system_is_raised_as_such_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "no folder" / "a.safetensors"
    with pytest.raises(FileNotFoundError) as caught:
        filled(weight=torch.ones(2)).writers({})["a.safetensors"](path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(path))
