"""A copy of a model that a check may run: the model itself, buffers that change in a forward pass, and random numbers stay as they are."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import cast

import torch
from torch import Tensor, nn

from infra.spec.errors import reason_of
from training.errors import SettingsError
from training.seeding import kept_draws

_MOST_PARAMETERS = 10**9
"""Parameters of a model of which a copy may fit beside it."""


def trial_copy(module: nn.Module) -> nn.Module | None:
    """A copy of a model; None if it is too large for one beside it, or cannot be copied."""
    if sum(one.numel() for one in module.parameters()) > _MOST_PARAMETERS:
        return None
    try:
        return copy_of(module)
    except Exception:  # noqa: BLE001 - whatever a user's attribute raises
        return None


def copy_of(module: nn.Module) -> nn.Module:
    """A copy of a model, also of one that keeps what it has computed, such as `torch.nn.utils.weight_norm` and `prune`."""
    return copied(module, {id(one): one.detach().clone() for one in computed_in(module)})


def copied(module: nn.Module, instead: Mapping[int, object]) -> nn.Module:
    """A copy of a model that shares with it what cannot be copied, such as a lock or an open file.

    Args:
        module: the model.
        instead: what the copy has in the place of values, by their identities.

    Raises:
        SettingsError: an attribute of it fails to be copied.
    """
    with suppress(Exception):  # mostly a TypeError of pickle, on which copying is built
        return copy.deepcopy(module, dict(instead))
    try:
        return copy.deepcopy(module, {**{id(one): one for one in _uncopyable(module)}, **instead})
    except Exception as error:
        raise SettingsError(
            f"model.name: the model cannot be copied (copy.deepcopy): {reason_of(error)}",
            remedy="keep what fails to be copied out of the model's attributes, or give its class a method __deepcopy__",
        ) from error


def _uncopyable(module: nn.Module) -> Iterator[object]:
    """What an object refers to, also by way of others, that has no way to be copied."""
    seen, left = set[int](), cast("list[object]", [module])
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | FunctionType | BuiltinFunctionType | Tensor):
            continue
        seen.add(id(one))
        try:
            if not isinstance(one, dict | list | tuple | set | MethodType) and not hasattr(one, "__deepcopy__"):
                one.__reduce_ex__(4)
        except TypeError:
            yield one
        else:
            left += gc.get_referents(one)


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
