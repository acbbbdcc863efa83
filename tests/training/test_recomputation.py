"""Activation checkpointing: less memory, the same bits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.launch.ranks import on_ranks
from tests.training.runs import run_alone, small_settings
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.launch.task import RankPlace, RankTask
from training.models.options import TransformerOptions
from training.models.transformer import transformer
from training.recomputation import recompute_blocks
from training.worker import run_rank

ON: dict[str, Any] = {"activation_checkpointing": True}
TOKENS = SampleSpec(shape=(64,), outputs=32, vocabulary=32, is_sequence=True)


def kept_bytes(module: nn.Module, inputs: Tensor) -> int:
    """Bytes that a forward pass keeps for the backward pass, weights excluded."""
    weights = {one.untyped_storage().data_ptr() for one in module.parameters()}
    kept = dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = module(inputs)
        # What is kept must stay alive until it is counted: freed memory is used again.
        del outputs
    return sum(kept.values())


def test_a_transformer_keeps_a_fraction_of_its_activations() -> None:
    plain = transformer(TOKENS, TransformerOptions(layers=8, dropout=0.0))
    recomputed = copy.deepcopy(plain)
    recompute_blocks(recomputed, model="transformer")
    tokens = torch.randint(32, (4, 64))
    assert kept_bytes(recomputed, tokens) < 0.3 * kept_bytes(plain, tokens)
    assert list(recomputed.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(copy.deepcopy(recomputed)(tokens), plain(tokens), rtol=0, atol=0)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"model\.name=mlp has no blocks"):
        recompute_blocks(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), model="mlp")


def test_dropout_and_batch_norm_end_in_the_same_bits(tmp_path: Path) -> None:
    """The small CNN has batch norm in its blocks; the transformer has dropout in them."""
    language: dict[str, dict[str, Any]] = {
        "model": {"name": "transformer", "options": {"width": 32, "layers": 2, "heads": 2, "dropout": 0.2}},
        "data": {"dataset": "python_reference", "options": {"length": 32}},
        "objective": {"name": "language_modelling"},
    }
    for name, sections in (("cnn", {}), ("language", language)):
        recipe = {**sections, "loop": {"max_steps": 6, "global_batch": 16}}
        plain = run_alone(small_settings(**recipe), tmp_path / name)
        recomputed = run_alone(small_settings(**recipe, compute=ON), tmp_path / f"{name}-recomputed")
        assert recomputed.weights_sha256 == plain.weights_sha256


def _rank(place: RankPlace, *, folder: str, compute: dict[str, Any], strategy: str) -> str:
    torch.set_num_threads(1)
    settings = small_settings(
        compute=compute,
        strategy={"name": strategy},
        loop={"max_steps": 6, "accumulation": 2},
        scale={"launcher": "torchrun", "workers": place.world},
    )
    return run_rank(RankTask(settings=settings, run_directory=Path(folder), attempt=0), place).weights_sha256


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_each_strategy_ends_in_the_same_bits(tmp_path: Path, strategy: str) -> None:
    hashes = set[str]()
    for name, compute in (("plain", {}), ("recomputed", ON)):
        (tmp_path / name).mkdir()
        hashes.add(on_ranks(2, _rank, folder=str(tmp_path / name), compute=compute, strategy=strategy)[0])
    assert len(hashes) == 1
