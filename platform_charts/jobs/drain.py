"""What a pod does between the notice of its end and its end: shell scripts for Kubernetes's preStop hook.

The trainer's contract (training.rundir): the driver holds a lock on `driver.pid` in the run's folder while it lives, and a
file `stop` beside it makes the run commit its state at the next step and end. Both lie on the shared file system, so the
pods need not reach each other.
"""

from __future__ import annotations

_END_SECONDS = 15
"""Part of the grace period that is left to Ray's own end."""

_DRAIN_SECONDS = 20
"""Time the notice to Ray may take: it must not hold up a pod whose head is gone."""


def drain_head(run_folder: str | None, *, grace_seconds: int) -> str | None:
    """The head goes only when the whole cluster does: the run is asked to stop, and the head waits until it has."""
    if run_folder is None:
        return None
    return (
        f"cd {run_folder} && [ -f driver.pid ] || exit 0\n"
        "flock --shared --nonblock driver.pid true && exit 0\n"
        "touch stop\n"
        f"flock --shared --timeout {grace_seconds - _END_SECONDS} driver.pid true || exit 0\n"
    )


def drain_worker(run_folder: str | None, *, grace_seconds: int) -> str:
    """A worker tells Ray that its node goes, and lives as long as it may while the run is being trained.

    Of a whole cluster that goes, the run ends when the head's request is met, and the wait with it.
    """
    seconds = grace_seconds - _END_SECONDS
    notice = (
        f"timeout {_DRAIN_SECONDS} ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION"
        f" --reason-message 'the pod was asked to end' --deadline-remaining-seconds {seconds} || true\n"
    )
    if run_folder is None:
        return notice
    return (
        f"{notice}cd {run_folder} && [ -f driver.pid ] || exit 0\n"
        f"flock --shared --timeout {seconds - _DRAIN_SECONDS} driver.pid true || exit 0\n"
    )
