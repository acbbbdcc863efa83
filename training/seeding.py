"""Seeds, determinism and threads.

Random numbers of a step (dropout, and those of a user's own model) are a pure function of (seed, step, micro-batch, rank), and those of
a user's own dataset of (seed, epoch, position): there is no generator state to save, and a resumed run draws the same numbers as an
uninterrupted one. That includes generators that user code makes itself (`generators_of`).
"""

from __future__ import annotations

import hashlib
import os
import random
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import islice
from pathlib import PurePath
from types import BuiltinMethodType, CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from training.user_code import is_user_code

Generator = np.random.Generator | np.random.RandomState | torch.Generator | random.Random
"""Draws random numbers from a state of its own."""

Own = Mapping[str, Generator]
"""Generators of user code, by where it keeps them."""

NONE: Own = MappingProxyType({})

_DEPTH, _BREADTH = 10, 10_000
"""How far, and among how many values at a time, the generators of an object are looked for."""

_LARGE = 100
"""Values of a collection that is looked through again only if their number has changed."""

_PLAIN = (str, bytes, int, float, PurePath, torch.Tensor, np.ndarray, type(None))
"""What keeps no generator."""


def seed_everything(seed: int, *, deterministic: bool) -> None:
    """Seeds the global generators of torch (every device), numpy and Python, and sets how kernels are chosen.

    Called before the model is built, whose weights are drawn from torch's generator, and before the first CUDA call,
    because cuBLAS reads its workspace setting when it is initialised.

    Args:
        seed: 0 <= seed < 2**63. The Mersenne Twisters of numpy and of torch on a CPU take the low 32 bits of it.
        deterministic: torch raises RuntimeError for an operation without a deterministic kernel; cuDNN does not
            benchmark kernels.
    """
    torch.manual_seed(seed)
    _seed_host_generators(seed)
    torch.use_deterministic_algorithms(deterministic)
    # Filling fresh memory with NaN only helps code that reads uninitialised memory, and costs 4 % of a small CNN's step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        # cuBLAS documentation, "Results reproducibility"; torch refuses deterministic matrix products without it.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def seed_step(seed: int, step: int, micro: int, rank: int, *, own: Own = NONE) -> None:
    """Seeds every global generator for the forward pass of one micro-batch, in about 7 microseconds, and those of user code.

    Args:
        seed: the run's seed.
        step: number of the optimizer step in the run.
        micro: number of the micro-batch in the step.
        rank: this process.
        own: of user code, see `generators_of`; each takes about 10 microseconds.
    """
    # A hash and not a sum: neighbouring steps and ranks must not get the streams of another seed.
    digest = hashlib.blake2b(struct.pack("<4Q", seed, step, micro, rank), digest_size=8).digest()
    mixed = int.from_bytes(digest, "little")
    # torch.manual_seed takes 80 microseconds, for devices that do not exist.
    torch.default_generator.manual_seed(mixed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(mixed)
    _seed_host_generators(mixed)
    _seed_own(own, mixed)


def kept_draws(own: Own = NONE) -> Callable[[], None]:
    """What lets the global generators of Python and NumPy, and those of `own`, draw the numbers again that they draw next."""
    python, numpy = random.getstate(), np.random.get_state()
    states = [(one, _state_of(one)) for one in own.values()]

    def draw_again() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        for one, state in states:
            _put_back(one, state)

    return draw_again


@contextmanager
def seeded_reading(seed: int, epoch: int, position: int, *, own: Own = NONE) -> Iterator[None]:
    """Within the block, torch, NumPy and Python draw the numbers of a place in an epoch; afterwards they go on as before it.

    Generators of user code draw them as well.

    A dataset of a user's own may augment with them. So ranks, loader processes, seeds and epochs draw different numbers, a resumed run
    draws the same as an uninterrupted one, and the model's draws do not depend on the dataset's. Takes about 0.1 ms.

    Args:
        seed: the run's seed.
        epoch: the epoch.
        position: of the first sample that is read.
        own: of user code, see `generators_of`.
    """
    digest = hashlib.blake2b(struct.pack("<3Q", seed, epoch, position), digest_size=8, person=b"reading").digest()
    mixed = int.from_bytes(digest, "little")
    before, draw_again = torch.get_rng_state(), kept_draws()
    torch.default_generator.manual_seed(mixed)
    _seed_host_generators(mixed)
    _seed_own(own, mixed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
        draw_again()


def generators_of(*owners: object, sizes: dict[int, int] | None = None) -> dict[str, Generator]:
    """The generators of random numbers that user code has made, by where it keeps them.

    Those that an object keeps, in its attributes or in those of what it keeps, and those in global names of user modules.

    Args:
        owners: a dataset's split, a model, an objective.
        sizes: of large collections in an earlier call with it, by their identities; those of the same size are not looked through again.
    """
    roots = [
        (f"{module.__name__}.{name}", value, _DEPTH - isinstance(value, dict | list | tuple))
        for module in _user_modules(len(sys.modules))
        for name, value in list(vars(module).items())
        if not name.startswith("__")
    ]
    for number, owner in enumerate(owners):
        parts = owner.modules() if isinstance(owner, torch.nn.Module) else [owner]
        roots += [(f"{number}.{index}", part, 0) for index, part in enumerate(parts)]
    found: dict[int, tuple[str, Generator]] = {}
    for path, one in _reached(roots, sizes):
        if isinstance(one, Generator):
            found.setdefault(id(one), (path, one))
    return dict(found.values())


def runs_user_code(owner: object) -> bool:
    """Whether an object is, or keeps, an object of a class of user code or a function of it, which may make generators."""
    found = (one for _, one in _reached([("", owner, 0)]))
    return any(_is_users(one if isinstance(one, FunctionType) else type(one)) for one in found)


def _reached(roots: list[tuple[str, object, int]], sizes: dict[int, int] | None = None) -> Iterator[tuple[str, object]]:
    """These objects and what they keep, each with a name.

    Args:
        roots: name, object, and how many steps of the depth it has used up.
        sizes: see `generators_of`.
    """
    seen: dict[int, int] = {}  # at which depth
    left = roots[::-1]
    while left:
        path, one, depth = left.pop()
        if seen.get(id(one), _DEPTH + 1) <= depth or isinstance(one, type | ModuleType | random.SystemRandom):
            continue
        seen[id(one)] = depth
        yield path, one
        if depth < _DEPTH and not isinstance(one, Generator) and not _is_known(one, sizes):
            kept = islice(_kept_by(one), _BREADTH)
            left += [(f"{path}.{name}", value, depth + 1) for name, value in kept if not isinstance(value, _PLAIN)]


@lru_cache(maxsize=1)
def _user_modules(count: int) -> tuple[ModuleType, ...]:
    """Those that are imported by now, of all whose number is given: a look at all takes 1 ms."""
    del count
    files = ((module, getattr(module, "__file__", None)) for _, module in sorted(sys.modules.items()))
    return tuple(module for module, file in files if isinstance(file, str) and is_user_code(file))


def _is_known(one: object, sizes: dict[int, int] | None) -> bool:
    if sizes is None or not isinstance(one, dict | list | tuple) or (size := _base(one).__len__(one)) <= _LARGE:
        return False
    before, sizes[id(one)] = sizes.get(id(one)), size
    return bool(before == size)


def _base(one: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> Any:  # noqa: ANN401 - a type
    """The collection that a class of Python is, whose methods run no code of the class."""
    return next(kind for kind in (dict, list, tuple) if isinstance(one, kind))


def _kept_by(owner: object) -> Iterable[tuple[object, object]]:
    """What an object, or a function, may draw from: attributes, also of its class, what it is bound to or closes over, defaults.

    Each with a name that another process gives it, too, whatever else was kept before. Runs no code of the object: a collection may load
    what it has when it is asked for it, and an attribute may be computed.
    """
    if isinstance(owner, dict):
        return ((key if isinstance(key, str | int) else n, value) for n, (key, value) in enumerate(dict.items(owner)))
    if isinstance(owner, _PLAIN):
        return ()
    if isinstance(owner, partial):
        return enumerate((owner.func, *owner.args, *owner.keywords.values()))
    if isinstance(owner, FunctionType):
        cells = (cell.cell_contents for cell in owner.__closure__ or () if cell != CellType())
        return enumerate((*cells, *(owner.__defaults__ or ()), *(owner.__kwdefaults__ or {}).values()))
    if isinstance(owner, list | tuple):
        return enumerate(_base(owner).__iter__(owner))
    of_classes = [
        (f"{one.__name__}:{name}", value)
        for one in type(owner).__mro__
        if _is_users(one)
        for name, value in vars(one).items()
    ]
    slots = [(name, _attribute(owner, name)) for one in type(owner).__mro__ for name in _slots_of(one)]
    is_bound = isinstance(owner, MethodType | BuiltinMethodType)
    bound = [(name, getattr(owner, name, None)) for name in ("__self__", "__func__")] if is_bound else []
    return *(_attribute(owner, "__dict__") or {}).items(), *slots, *of_classes, *bound


def _attribute(owner: object, name: str) -> Any:  # noqa: ANN401 - of the object
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return None


def _is_users(one: type | FunctionType) -> bool:
    file = getattr(sys.modules.get(one.__module__), "__file__", None)
    return isinstance(file, str) and is_user_code(file)


def _slots_of(one: type) -> tuple[str, ...]:
    slots = vars(one).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _seed_own(own: Own, seed: int) -> None:
    for path, generator in own.items():
        # A hash: they must not draw what the global ones draw, nor another place's.
        digest = hashlib.blake2b(struct.pack("<Q", seed % 2**64) + path.encode(), digest_size=8, person=b"own").digest()
        _seed_generator(generator, int.from_bytes(digest, "little") % 2**63)


def _state_of(generator: Generator) -> Any:  # noqa: ANN401 - each kind has another
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _put_back(generator: Generator, state: Any) -> None:  # noqa: ANN401
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _seed_generator(generator: Generator, seed: int) -> None:
    if isinstance(generator, np.random.Generator):
        kind = type(generator.bit_generator)
        generator.bit_generator.state = kind(seed).state
    elif isinstance(generator, np.random.RandomState):
        generator.seed(seed % 2**32)
    elif isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    else:
        generator.seed(seed)


def configure_threads(count: int) -> None:
    """Sets the number of threads of one CPU operation."""
    torch.set_num_threads(count)


def _seed_host_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
