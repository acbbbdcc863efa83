"""The hash of a model's weights and their file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from torch import nn

from tests.limits import files_up_to
from training.errors import CheckpointError
from training.export import save_safetensors, weights_sha256


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight


class Named(nn.Module):
    """Holds tensors as buffers, under the names and in the order given."""

    def __init__(self, **tensors: torch.Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))


def test_the_hash_is_the_same_on_every_machine_and_for_every_order_and_layout() -> None:
    tensors = {"weight": torch.arange(6, dtype=torch.float32).reshape(2, 3), "count": torch.tensor(3)}
    assert weights_sha256(Named(**tensors)) == "4b38c2415f8a6ecc6fe2f13001dadb614f4e5074e6626473368cd22600d672d2"
    matrix, vector = torch.randn(3, 5), torch.randn(2, dtype=torch.bfloat16)
    plain = Named(matrix=matrix, vector=vector)
    assert weights_sha256(Named(vector=vector, matrix=matrix.t().contiguous().t())) == weights_sha256(plain)


def test_any_change_of_a_number_name_shape_or_type_changes_the_hash() -> None:
    hashes = [weights_sha256(network())]
    for name in ("0.weight", "0.bias", "1.running_mean", "1.num_batches_tracked"):
        model = network()
        model.state_dict()[name].view(-1)[0] += 1
        hashes.append(weights_sha256(model))
    hashes += [
        weights_sha256(other)
        for other in (
            Named(a=torch.zeros(4)),
            Named(b=torch.zeros(4)),
            Named(a=torch.zeros(2, 2)),
            Named(a=torch.zeros(4, dtype=torch.int32)),
            Named(a=torch.zeros(4), b=torch.zeros(0)),
        )
    ]
    assert len(set(hashes)) == len(hashes)


def test_weights_and_metadata_can_be_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_safetensors(network(), path, {"run": "digits-1"})
    restored = network(seed=1)
    safetensors.torch.load_model(restored, path)
    assert weights_sha256(restored) == weights_sha256(network())
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata()["run"] == "digits-1"


def test_shared_weights_are_written_once_and_restored_to_both_names(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = Tied()
    save_safetensors(model, path, {})
    assert len(safetensors.torch.load_file(path)) == 1
    restored = Tied()
    safetensors.torch.load_model(restored, path)
    assert weights_sha256(restored) == weights_sha256(model)


def test_a_missing_folder_is_named_and_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "model.safetensors"
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        save_safetensors(network(), path, {})
    path = tmp_path / "model.safetensors"
    save_safetensors(network(), path, {})
    larger = nn.Linear(100, 100)
    with pytest.raises(CheckpointError, match="could not be written"), files_up_to(4096):
        save_safetensors(larger, path, {})
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    safetensors.torch.load_model(network(seed=1), path)
