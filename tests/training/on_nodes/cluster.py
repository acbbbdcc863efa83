"""Jobs on the real nodes of a sandbox, submitted by the commands that people type."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from infra.kube.connection import connect_with
from infra.lifecycle.cli import main
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.lifecycle.sandbox.node.images import import_image
from infra.lifecycle.sandbox.services.facts import Services
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest, api_object
from observability.event_log import Event
from observability.runlog import RunEnded, RunLogReader, Step, select
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.engines.real_nodes import Pods, needs_real_nodes, shell_image
from tests.engines.report_table import ran
from tests.infra.lifecycle.sandbox.folders import ROOT, sandbox_folder
from tests.infra.lifecycle.sandbox_services.running import Sandbox
from tests.training.cluster.commands import interruptible
from training.cluster.objects import POD, RAY_JOB, WORKLOAD

NAME = "jobs on real nodes"
GPU_GROUP = "a10g"
NODES = ("system=1", "heads=2", f"{GPU_GROUP}=1")
"""A head and two workers of 4 GiB each need two nodes of the group `heads`."""

PATIENCE = 900.0
"""Seconds; the first pod of a node waits until its image is pulled and unpacked, which takes two minutes on a quiet machine."""

SETTINGS = ("--epochs", "150", "--set", "checkpoint.every_steps=100")
"""Long enough to be disturbed in the middle: a minute or two of training on two cores."""

HALFWAY = 500
"""A step that many more follow."""


@dataclass(frozen=True)
class Job:
    """A job that somebody submitted, and follows.

    Attributes:
        sandbox: where it runs.
        name: of the job.
        team: its team.
        output: file with what the command printed.
        process: the command.
    """

    sandbox: Sandbox
    name: str
    team: str
    output: Path
    process: subprocess.Popen[bytes]
    _events: list[Event] = field(default_factory=list, init=False)

    @property
    def said(self) -> str:
        """What the command has printed so far."""
        return self.output.read_text()

    @property
    def folder(self) -> Path:
        """The run's folder on the shared file system, as this machine sees it."""
        found = sorted(Path(self.sandbox.services.shared).glob(f"*/teams/{self.team}/{self.name}"))
        return found[0] if found else Path(self.sandbox.services.shared, "none yet")

    @property
    def events(self) -> Sequence[Event]:
        """The events of the run so far; reads those that are new, because the nodes need this machine's time."""
        if self.folder.is_dir():
            self._events.extend(self._log.read_new())
        return self._events

    @cached_property
    def _log(self) -> RunLogReader:
        return RunLogReader(self.folder)

    @property
    def step(self) -> int:
        """The newest step of the run, 0 before the first."""
        return next((one.step for one in reversed(self.events) if isinstance(one, Step)), 0)

    @property
    def ends(self) -> list[RunEnded]:
        """Every end of the run's driver."""
        return select(self.events, RunEnded)

    @property
    def weights(self) -> str:
        """Hash of the final weights."""
        return self.ends[-1].weights_sha256

    def await_step(self, step: int) -> None:
        """Wait until the run has made a step, as long as its command runs."""

        def is_reached() -> bool:
            has_ended = self.process.poll() is not None
            reached = self.step >= step
            assert reached or not has_ended, f"{self.name}: ended before step {step}:\n{self.said}"
            return reached

        self.await_(is_reached, what=f"step {step}")

    def await_(self, holds: Callable[[], object], *, what: str, seconds: float = PATIENCE) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"{self.name}: not {what} after {seconds:.0f} s:\n{self.said}"
            time.sleep(0.2)

    def end(self, *, seconds: float = 2 * PATIENCE) -> int:
        """Wait for the command's end; returns its exit status."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name}: still running after {seconds:.0f} s:\n{self.said}") from None

    def pods(self, kind: str) -> list[Manifest]:
        """Its pods of a kind that are not being deleted: `head`, `worker` or `submitter`."""
        found = self.sandbox.pods.cluster.items(*POD, namespace=self.team, labels=f"{JOB_LABEL}={self.name}")
        left = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in left if pod["metadata"]["labels"].get("ray.io/node-type", "submitter") == kind]

    def has_no_pods(self) -> bool:
        """Whether its cluster is gone."""
        return not self.pods("head") + self.pods("worker")

    def read(self) -> Manifest:
        """The RayJob."""
        found = self.sandbox.pods.cluster.read(api_object(*RAY_JOB, self.name, namespace=self.team))
        assert found is not None
        return found

    def workloads(self) -> list[Manifest]:
        """Its Workloads, of which an elastic job has several, the oldest first."""
        found = [
            one
            for one in self.sandbox.pods.cluster.items(*WORKLOAD, namespace=self.team)
            if any(owner["name"] == self.name for owner in one["metadata"].get("ownerReferences", []))
        ]
        return sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"]))


@dataclass(frozen=True)
class NodeCluster:
    """A sandbox whose nodes run jobs.

    Attributes:
        sandbox: it.
        place: folder for the output of commands.
    """

    sandbox: Sandbox
    place: Path

    def arguments(self, team: str) -> list[str]:
        """The options with which a command reaches the cluster."""
        outputs, kubeconfig = self.sandbox.folder / "outputs.json", kubeconfig_in(self.sandbox.folder)
        return ["--env", "dev", "--team", team, "--outputs", str(outputs), "--kubeconfig", str(kubeconfig)]

    def run(self, *words: str, team: str = "research") -> subprocess.CompletedProcess[str]:
        """Run a command of `python -m training` to its end."""
        command = [sys.executable, "-m", "training", *words, *self.arguments(team)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)

    @contextmanager
    def job(self, name: str, *options: str, team: str = "research", command: str = "train") -> Iterator[Job]:
        """Submit a job, or resume one, and follow it; or start a session."""
        words = [command, *(["--name", name] if command == "train" else [name]), *options, *self.arguments(team)]
        output = self.place / f"{name}-{command}.log"
        with output.open("wb") as file:
            process = subprocess.Popen(interruptible(*words), cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
        kept = f"session-{name}" if command == "cluster" else name
        made = Job(self.sandbox, kept, team, output, process)
        try:
            yield made
        finally:
            process.kill()
            process.wait()

    def give(self, team: str, *, gpus: int) -> None:
        """Set a team's own GPUs of the group that has a real node; what others leave it may borrow."""
        cluster = self.sandbox.pods.cluster
        queue = cluster.read(api_object(KUEUE_API, "ClusterQueue", team))
        assert queue is not None
        quotas = [
            resource
            for group in queue["spec"]["resourceGroups"]
            for flavor in group["flavors"]
            if GPU_GROUP in flavor["name"]
            for resource in flavor["resources"]
            if resource["name"] == "nvidia.com/gpu"
        ]
        for quota in quotas:
            quota["nominalQuota"] = str(gpus)
        cluster.patch(queue, {"spec": {"resourceGroups": queue["spec"]["resourceGroups"]}})

    def delete(self, *jobs: Job) -> None:
        """Delete jobs, and wait until their pods are gone."""
        for job in jobs:
            self.sandbox.pods.cluster.delete(
                api_object(*RAY_JOB, job.name, namespace=job.team), propagation="Foreground"
            )
        for job in jobs:
            job.await_(job.has_no_pods, what="deleted")


@contextmanager
def running_cluster(sandbox: Path | None = None) -> Iterator[NodeCluster]:
    """A cluster that runs jobs; skips where this machine cannot have real nodes.

    Args:
        sandbox: folder of one that runs, with real nodes of the groups in `NODES`; None starts and stops one.
    """
    needs_real_nodes()
    with tempfile.TemporaryDirectory(prefix="rtp-jobs-") as made, ExitStack() as stack:
        place = Path(made)
        folder = sandbox or stack.enter_context(_new_sandbox(place))
        import_image(folder, shell_image(place))
        services = Services.read(folder)
        assert services is not None
        ran(NAME)
        yield NodeCluster(Sandbox(folder, Pods(connect_with(kubeconfig_in(folder)), folder), services), place)


@contextmanager
def _new_sandbox(place: Path) -> Iterator[Path]:
    with sandbox_folder(place) as folder:
        words = [word for group in NODES for word in ("--real", group)]
        assert main(["sandbox", "--env", "dev", *words]) == 0
        yield folder
