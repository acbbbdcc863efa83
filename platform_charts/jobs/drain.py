"""preStop hooks: what a pod does before Kubernetes terminates it, as shell scripts.

The trainer's contract (training.rundir): the driver holds a lock on `driver.pid` in the run's folder while it runs, and a
file `stop` beside it makes the run commit its state at the next step and end. Both are on the shared file system, so the
pods need not reach each other. Ranks hold a lock on a file of their pod (training.launch.pod_lock); they end with their driver.
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


def drain_worker(run_folder: str | None, *, pod_lock: str, grace_seconds: int, leaves_at_once: bool) -> str:
    """A worker tells Ray that its node is going, and stays until the ranks have left it, as long as it may.

    Those of an elastic job leave at once: it goes on without the worker, and another job may be waiting for the GPUs. The others stay until
    their replacements are ready, or as long as is safe. Without a driver there is nothing to save, and often no head to tell, which
    `ray drain-node` would try to reach until its time is over.

    Args:
        run_folder: of the run or search; None: there is none to wait for.
        pod_lock: file that the ranks in the pod lock.
        grace_seconds: termination grace period of the pod.
        leaves_at_once: the job continues without the worker.
    """
    # Counts from the call of Ray at the end of the command, which takes seconds: the pod stays until then, however long it takes.
    seconds = grace_seconds - _END_SECONDS - _DRAIN_SECONDS
    deadline = "" if leaves_at_once else f" --deadline-remaining-seconds {seconds}"
    notice = (
        f"timeout {_DRAIN_SECONDS} ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION"
        f" --reason-message 'the pod was asked to end'{deadline} || true\n"
    )
    if run_folder is None:
        return notice
    return (
        f"cd {run_folder} && [ -f driver.pid ] || exit 0\n"
        "flock --shared --nonblock driver.pid true && exit 0\n"
        f"{notice}"
        f"flock --timeout {seconds} {pod_lock} true || exit 0\n"
    )
