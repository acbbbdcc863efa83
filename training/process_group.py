"""The default process group of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from training.errors import SettingsError
from training.launch.task import RankPlace
from training.network import interface_towards

_LONGEST_PREPARATION = timedelta(days=1)


@contextmanager
def process_group(
    place: RankPlace, *, gpu: bool, timeout_seconds: float, code: str = "", prepare: Callable[[], None] | None = None
) -> Iterator[None]:
    """Initialize the default process group for the duration of the block; a world of one needs none.

    Sets Gloo's interface, loopback if all ranks are on this machine; its default is the one the hostname resolves to.

    Args:
        place: of this rank.
        gpu: NCCL instead of Gloo.
        timeout_seconds: of the rendezvous and of every collective.
        code: sha256 of the code that this rank imports, empty without code of one's own: drivers of several nodes are each given theirs.
        prepare: runs before, in the first rank of every node, while all others wait for up to a day: a node that was replaced
            has work that the others have done, and no collective waits that long.

    Raises:
        SettingsError: the code is not that of rank 0.
    """
    if place.world == 1:
        if prepare is not None:
            prepare()
        yield
        return
    interface = "lo" if place.local_world == place.world else interface_towards(place.master_address)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    timeout = timedelta(seconds=timeout_seconds)
    store = _store(place, timeout)
    _require_equal(store, place, code)
    if prepare is not None:
        if place.local_rank == 0:
            prepare()
        _meet(store, place)
    dist.init_process_group(
        "nccl" if gpu else "gloo", store=store, rank=place.rank, world_size=place.world, timeout=timeout
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def _store(place: RankPlace, timeout: timedelta) -> Store:
    """The ranks' key-value store, which rank 0 serves from a thread of its own."""
    url = f"tcp://{place.master_address}:{place.master_port}"
    store, _, _ = next(rendezvous(url, place.rank, place.world, timeout=timeout))
    store.set_timeout(timeout)
    return PrefixStore("default_pg", store)


def _require_equal(store: Store, place: RankPlace, code: str) -> None:
    """Refuse other code than rank 0 has."""
    if place.rank == 0:
        store.set("code", code)
        return
    first = store.get("code").decode()
    if code != first:
        raise SettingsError(
            f"the ranks have different code of their own: rank {place.rank} has {code or 'none'}, rank 0 {first or 'none'} (sha256)",
            remedy="give every node the same CODE=folder, or the archive of it that the run has kept",
        )


def _meet(store: Store, place: RankPlace) -> None:
    """Wait until every rank is here."""
    store.set(f"prepared/{place.rank}", "")
    store.wait([f"prepared/{rank}" for rank in range(place.world)], _LONGEST_PREPARATION)
