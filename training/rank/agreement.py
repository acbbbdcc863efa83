"""Checks that all ranks have built the same model: gradients are exchanged by their order, whatever the weights are called."""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist
from torch import nn

from training.errors import SettingsError

_NOTHING = "nothing more"


def check_agreement(module: nn.Module, *, model: str, device: torch.device, has_broadcast: bool) -> None:
    """Compare the names, shapes and types of weights and buffers in their order, which are frozen, and their values; collective.

    Args:
        module: of this rank, before it is distributed.
        model: its name in the settings.
        device: of the collectives.
        has_broadcast: the strategy copies the values of rank 0 to all ranks, so that only what they are is compared.

    Raises:
        SettingsError: a rank has built another model than rank 0; raised on all ranks, with the first difference.
    """
    tensors = [*module.named_parameters(), *module.named_buffers()]
    lines = [
        f"{name} {tuple(one.shape)} {one.dtype}{'' if one.requires_grad or not isinstance(one, nn.Parameter) else ' (frozen)'}"
        for name, one in tensors
    ]
    digest = hashlib.sha256("\n".join(lines).encode()).digest()
    digests = _gathered(torch.tensor(list(digest), dtype=torch.uint8, device=device))
    if not all(torch.equal(one, digests[0]) for one in digests):
        everything: list[list[str]] = [[] for _ in digests]
        dist.all_gather_object(everything, lines)
        rank, other = next((rank, other) for rank, other in enumerate(everything) if other != everything[0])
        pairs = zip([*everything[0], _NOTHING], [*other, _NOTHING], strict=False)
        first, second = next((left, right) for left, right in pairs if left != right)
        raise _refusal(model, rank, f"{second} instead of {first}")
    if has_broadcast or not tensors:
        return
    with torch.no_grad():
        sums = _gathered(torch.stack([_real(one).sum(dtype=torch.float64).to(device) for _, one in tensors]))
    for rank, found in enumerate(sums):
        # GPUs of several kinds may add in another order.
        differs = ~torch.isclose(found, sums[0], rtol=1e-6, atol=1e-6, equal_nan=True)
        if bool(differs.any()):
            place = int(differs.nonzero()[0])
            raise _refusal(model, rank, f"the values of {tensors[place][0]} differ")


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _gathered(own: torch.Tensor) -> list[torch.Tensor]:
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    return found


def _refusal(model: str, rank: int, difference: str) -> SettingsError:
    return SettingsError(
        f"rank {rank} has built another model.name={model} than rank 0: {difference}",
        remedy="usual causes: the model depends on the rank, on a set's order or on random numbers of its own, or a node has other code or "
        "packages",
    )
