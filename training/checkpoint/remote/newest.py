"""The newest good checkpoint of both tiers, copied to the run's folder if it is in the bucket."""

from __future__ import annotations

from collections.abc import Callable

from training.checkpoint.manifest import Identity, Manifest
from training.checkpoint.remote.bucket import RemoteStoreError
from training.checkpoint.remote.tier import RemoteCheckpoint, RemoteTier
from training.checkpoint.store import CheckpointStore, VerifiedCheckpoint, folder_name
from training.errors import CheckpointError, ResumeMismatchError


def newest_good(
    store: CheckpointStore, tier: RemoteTier | None, identity: Identity, *, report: Callable[[str], None]
) -> VerifiedCheckpoint | None:
    """The newest checkpoint that verifies in the run's folder or its bucket, None if neither has one; on return it is in the folder.

    The bucket is read for what the folder lacks: newer checkpoints, and good copies of those that are damaged here.

    Args:
        store: the run's folder.
        tier: its bucket; None without.
        identity: the run.
        report: told what was copied, and which checkpoints of the bucket are damaged; a line that begins with `warning: ` is one.

    Raises:
        ResumeMismatchError: a checkpoint belongs to another model, dataset, global batch or seed.
        CheckpointError: there are checkpoints, but none verifies; or there is none here, and the bucket does not answer.
    """
    if tier is None:
        return store.newest_good(identity)
    try:
        remote = tier.checkpoints()
    except RemoteStoreError as error:
        return _without_the_bucket(store, identity, error, report)
    here = max(store.steps(), default=0)
    if _fetch_newest(remote, store, tier, identity, above=here, report=report):
        return store.newest_good(identity)
    return _best_of_both(store, remote, tier, identity, report)


def refuse_another_run(url: str, manifest: Manifest, mismatches: list[str]) -> None:
    """Refuse a checkpoint of the bucket whose identity differs.

    Raises:
        ResumeMismatchError: there are mismatches.
    """
    if mismatches:
        raise ResumeMismatchError(
            f"the checkpoint {url}/{folder_name(manifest.step)} belongs to another run: {'; '.join(mismatches)}",
            remedy="set model.name, objective.name, data.*, loop.global_batch and run.seed back to the saved values, "
            "start a new run under another run.name, or choose another checkpoint.remote",
        )


def _without_the_bucket(
    store: CheckpointStore, identity: Identity, error: RemoteStoreError, report: Callable[[str], None]
) -> VerifiedCheckpoint:
    checkpoint = store.newest_good(identity)
    if checkpoint is None:
        raise CheckpointError(
            f"the run's folder has no checkpoint, and whether its bucket has one is not known: {error}",
            remedy="resume once the bucket answers; checkpoint.remote=null starts without it, at step 0",
        ) from error
    report(f"warning: {error}; the run resumes from its folder")
    return checkpoint


def _best_of_both(
    store: CheckpointStore,
    remote: list[RemoteCheckpoint],
    tier: RemoteTier,
    identity: Identity,
    report: Callable[[str], None],
) -> VerifiedCheckpoint | None:
    """The folder's newest good checkpoint, unless the bucket has a good copy of one that is damaged here."""
    try:
        found = store.newest_good(identity)
    except CheckpointError:
        if not _fetch_newest(remote, store, tier, identity, above=0, report=report):
            raise
        return store.newest_good(identity)
    if found is not None and found.skipped:
        for line in found.skipped:
            report(f"warning: {line}")
        if _fetch_newest(remote, store, tier, identity, above=found.progress.step, report=report):
            return store.newest_good(identity)
    return found


def _fetch_newest(
    remote: list[RemoteCheckpoint],
    store: CheckpointStore,
    tier: RemoteTier,
    identity: Identity,
    *,
    above: int,
    report: Callable[[str], None],
) -> bool:
    """Copy the bucket's newest good checkpoint of a later step than `above`; whether there was one."""
    for checkpoint in reversed(remote):
        if checkpoint.step <= above:
            break
        refuse_another_run(tier.url, checkpoint.manifest, checkpoint.manifest.identity.mismatches(identity))
        where = f"{tier.url}/{folder_name(checkpoint.step)}"
        problems = tier.fetch(checkpoint, store)
        if not problems:
            report(f"{where} was copied to the run's folder, {checkpoint.manifest.total_bytes} bytes")
            return True
        report(f"warning: {where} is not used: {'; '.join(problems)}")
    return False
