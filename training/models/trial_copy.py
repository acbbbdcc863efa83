"""A copy of a model that a check may run: the model itself, buffers that change in a forward pass, and random numbers stay as they are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from training.errors import SettingsError
from training.seeding import kept_draws

_MOST_PARAMETERS = 10**9
"""Parameters of a model of which a copy may fit beside it."""


def trial_copy(module: nn.Module) -> nn.Module | None:
    """A copy of a model; None if it is too large for one beside it, or cannot be copied, as with a lock among its attributes."""
    if sum(one.numel() for one in module.parameters()) > _MOST_PARAMETERS:
        return None
    try:
        return copy_of(module)
    except Exception:  # noqa: BLE001 - whatever a user's attribute raises
        return None


def copy_of(module: nn.Module) -> nn.Module:
    """A copy of a model, also of one that keeps what it has computed, such as `torch.nn.utils.weight_norm` and `prune`."""
    return copy.deepcopy(module, {id(one): one.detach().clone() for one in computed_in(module)})


def device_of(module: nn.Module) -> torch.device:
    """Where a model is; the CPU without parameters and buffers."""
    return next((one.device for one in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def computed_in(module: nn.Module) -> Iterator[Tensor]:
    """The attributes of a model that it has computed from its weights: torch copies none with a graph."""
    for part in module.modules():
        yield from (one for one in vars(part).values() if isinstance(one, Tensor) and not one.is_leaf)


def run_trial(module: nn.Module, inputs: Tensor) -> bool:
    """A forward pass without gradients; whether the model takes the inputs. If it fails on samples, too, the first step says so.

    Raises:
        SettingsError: what a hook of a check says.
    """
    with torch.no_grad(), drawing_on(inputs.device):
        try:
            module(inputs)
        except SettingsError:
            raise
        except Exception:  # noqa: BLE001 - of a user's own code
            return False
    return True


@contextmanager
def drawing_on(device: torch.device) -> Iterator[None]:
    """After the block the global generators, on a device too, draw the numbers that they would have drawn without it."""
    draw_again = kept_draws()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            draw_again()
