"""Restores a run from its newest good checkpoint, which all ranks agree on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from observability.runlog import Emit, Notice, Restored
from training.checkpoint.manifest import Identity, TrainProgress
from training.checkpoint.memory import RankMemory
from training.checkpoint.remote.newest import newest_good
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.store import CheckpointStore, VerifiedCheckpoint
from training.launch.task import RankPlace


def restore_newest(
    store: CheckpointStore,
    tier: RemoteTier | None,
    states: StateRegistry,
    identity: Identity,
    *,
    place: RankPlace,
    device: torch.device,
    shards_state: bool,
    refuse_lost: Callable[[], None],
    emit: Emit,
    memory: RankMemory | None = None,
) -> TrainProgress:
    """Restore the newest good checkpoint, if any. Rank 0 verifies and chooses; its peers open the same one.

    A state that is as new, in the memory of a rank that lost its peers, is preferred: all ranks get it from there.

    Args:
        store: the checkpoints of the run.
        tier: those in its bucket; None without, and on ranks other than 0.
        states: what to restore.
        identity: the run as it is now.
        place: of this rank.
        device: of the collectives.
        shards_state: whether ranks have different parts of the state (`Strategy.shards_state`). Then a peer of rank 0 reads its part
            only, and does not verify the others' a second time.
        refuse_lost: called on rank 0 if there is no checkpoint; refuses a run that has had one.
        emit: accepts the events.
        memory: of this process; None on all ranks if it does not outlive an attempt.

    Returns:
        How far the run has come.

    Raises:
        ResumeMismatchError: the checkpoint is of another run, or does not fit the states.
        CheckpointError: there are checkpoints, but none verifies.
    """
    found = None
    if memory is not None:
        found = memory.newest(identity, committed=max(store.steps(), default=-1) if place.rank == 0 else -1)
    if found is None:
        chosen = newest_good(store, tier, identity, report=partial(_report, emit)) if place.rank == 0 else None
        if chosen is None and place.rank == 0:
            refuse_lost()
        open_it = partial(store.open, identity=identity, hashes=not shards_state)
        checkpoint, source = _agree(chosen, place=place, device=device, open_it=open_it), None
    else:
        checkpoint, source = found
    if checkpoint is None:
        return TrainProgress(step=0, epoch=1, step_in_epoch=0, samples=0)
    initial = states.restore(checkpoint, shards_state=shards_state)
    if memory is not None:
        memory.clear()
    emit(
        Restored(
            step=checkpoint.progress.step,
            path="" if source is not None else str(checkpoint.path),
            weights_sha256=checkpoint.manifest.weights_sha256,
            skipped=list(checkpoint.skipped),
            from_rank=source,
        )
    )
    for note in checkpoint.notes:
        emit(Notice(level="info", message=f"resumed with a change: {note}"))
    for name in initial:
        emit(Notice(level="warning", message=f"the checkpoint has no state {name}, which keeps its initial values"))
    return checkpoint.progress


def _agree(
    checkpoint: VerifiedCheckpoint | None,
    *,
    place: RankPlace,
    device: torch.device,
    open_it: Callable[[int], VerifiedCheckpoint],
) -> VerifiedCheckpoint | None:
    """The checkpoint that rank 0 has chosen, on every rank."""
    if place.world > 1:
        chosen = torch.tensor([checkpoint.progress.step if checkpoint else -1], device=device)
        dist.broadcast(chosen, src=0)
        if place.rank > 0 and int(chosen) >= 0:
            return open_it(int(chosen))
    return checkpoint


def _report(emit: Emit, line: str) -> None:
    level = "warning" if line.startswith("warning: ") else "info"
    emit(Notice(level=level, message=line.removeprefix("warning: ")))
