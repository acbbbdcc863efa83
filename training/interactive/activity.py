"""What somebody does on the Ray cluster of a session: jobs, tasks, actors with resources, notebooks and terminals."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.job_submission import JobStatus, JobSubmissionClient, JobType
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray.util.state import list_tasks
from ray.util.state.exception import RayStateApiException

from training.interactive import notebook
from training.interactive.idle import Activity

_TERMINALS = Path("/dev/pts")
_PROBE_SECONDS = 20.0
_SECONDS = 10


class RayCluster:
    """The cluster that this process is a driver of."""

    def __init__(self, address: str) -> None:
        """Connect.

        Args:
            address: of the cluster, or `auto`.
        """
        context = ray.init(address=address, namespace="session", log_to_driver=False)
        self._jobs = JobSubmissionClient(f"http://{context.dashboard_url}")
        self._job_id = ray.get_runtime_context().get_job_id()

    def observe(self) -> Activity:
        """What somebody else than this driver does now.

        Raises:
            ConnectionError: Ray does not answer.
        """
        try:
            in_notebook = notebook.activity()
            running = self._submitted_jobs() or self._held_resources() or self._running_tasks() or in_notebook.running
            if running:
                return Activity(running=running)
            ages = [age for age in (self._terminal_age(), in_notebook.age) if age is not None]
            return Activity(age=min(ages, default=None))
        except (
            RayError,
            RayStateApiException,
            OSError,
            RuntimeError,
        ) as error:  # RuntimeError: the job server's answer
            raise ConnectionError(" ".join(str(error).split())[:200]) from error

    def _submitted_jobs(self) -> str:
        """Jobs of `ray job submit`. A connected driver is none: an idle notebook is one too."""
        active = [
            one.submission_id
            for one in self._jobs.list_jobs()
            if one.type is JobType.SUBMISSION
            and one.job_id != self._job_id
            and one.status in {JobStatus.PENDING, JobStatus.RUNNING}
        ]
        return f"job {active[0]}" if active else ""

    def _held_resources(self) -> str:
        total, available = ray.cluster_resources(), ray.available_resources()
        held = {name: total.get(name, 0) - available.get(name, 0) for name in ("GPU", "CPU")}
        return next((f"{count:g} {name} in use" for name, count in held.items() if count > 0), "")

    def _running_tasks(self) -> str:
        """Tasks and actor methods, which need not hold any resource."""
        others = [("state", "=", "RUNNING"), ("job_id", "!=", self._job_id)]
        found = list_tasks(filters=others, limit=1, timeout=_SECONDS, raise_on_missing_output=False)
        return f"task {found[0].name}" if found else ""

    def _terminal_age(self) -> float | None:
        """Seconds since a terminal of any node was used; a node that does not answer has none."""
        probe = ray.remote(num_cpus=0, max_retries=0)(terminal_age)
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        asked = [
            probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(one, soft=False)).remote() for one in nodes
        ]
        answered, _ = ray.wait(asked, num_returns=len(asked), timeout=_PROBE_SECONDS)
        ages: list[float | None] = []
        for one in answered:
            with suppress(RayError):
                ages.append(ray.get(one))
        return min((age for age in ages if age is not None), default=None)


def terminal_age(folder: Path = _TERMINALS) -> float | None:
    """Seconds since a terminal of this container was typed into or written to, like the idle time of `w`.

    The kernel updates the times of a pseudo-terminal at most every 8 seconds (drivers/tty/tty_io.c, tty_update_time).
    """
    used: list[float] = []
    for terminal in folder.glob("[0-9]*"):
        with suppress(OSError):  # closed meanwhile
            found = terminal.stat()
            used.append(max(found.st_atime, found.st_mtime))
    return max(0.0, time.time() - max(used)) if used else None
