"""preStop hooks: what a pod does before Kubernetes terminates it, as shell scripts.

The trainer's contract (training.rundir): the driver holds a lock on `driver.pid` in the run's folder while it runs, and a
file `stop` beside it makes the run commit its state at the next step and end. Both are on the shared file system, so the
pods need not reach each other.
"""

from __future__ import annotations

_END_SECONDS = 15
"""Part of the grace period that is left for Ray's own shutdown."""

_DRAIN_SECONDS = 20
"""Timeout of `ray drain-node`: it must not hold up a pod whose head is gone."""


def drain_head(run_folder: str | None, *, grace_seconds: int) -> str | None:
    """The head is terminated only with the whole cluster: it asks the run to stop, and waits until it has."""
    if run_folder is None:
        return None
    return (
        f"cd {run_folder} && [ -f driver.pid ] || exit 0\n"
        "flock --shared --nonblock driver.pid true && exit 0\n"
        "touch stop\n"
        f"flock --shared --timeout {grace_seconds - _END_SECONDS} driver.pid true || exit 0\n"
    )


def drain_worker(run_folder: str | None, *, grace_seconds: int) -> str:
    """A worker tells Ray that its node is going, and stays as long as it may while the run is training.

    Where the whole cluster is terminated, the run ends as the head asked, and the wait ends with it. Without a driver there is nothing
    to save, and often no head to tell, which `ray drain-node` would try to reach until its time is over.
    """
    seconds = grace_seconds - _END_SECONDS
    notice = (
        f"timeout {_DRAIN_SECONDS} ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION"
        f" --reason-message 'the pod was asked to end' --deadline-remaining-seconds {seconds} || true\n"
    )
    if run_folder is None:
        return notice
    return (
        f"cd {run_folder} && [ -f driver.pid ] || exit 0\n"
        "flock --shared --nonblock driver.pid true && exit 0\n"
        f"{notice}"
        f"flock --shared --timeout {seconds - _DRAIN_SECONDS} driver.pid true || exit 0\n"
    )
