"""A report of two nodes with eight H100 each, as the suite's program gives it, and how the suite judges it."""

from __future__ import annotations

from dataclasses import dataclass, field

from infra.kube.api import KubernetesApi
from infra.spec.manifest import Manifest
from tests.training.cluster.team_cluster import context_on, target
from training.cluster.conformance.catalogue import CHECKS
from training.cluster.conformance.check import Finding, Result, judged
from training.cluster.conformance.evidence import Evidence
from training.cluster.conformance.following import JobEnd, Limits
from training.cluster.conformance.job import SuiteJob
from training.cluster.conformance.job_checks import JobChecks
from training.cluster.conformance.judges.shape import JobShape
from training.cluster.conformance.runner import Runner
from training.cluster.state import JobState
from training.conformance.facts import (
    AllReduceFacts,
    FabricFacts,
    JobReport,
    NetworkFacts,
    ObjectFacts,
    Part,
    PartReport,
    RankFacts,
    TrackingFacts,
    TrainingFacts,
)

SHA = "ab" * 32
DONE = JobState(stage="done", status=0)
SHAPE = JobShape(pods=2, gpus=8, efa=32, instance_type="p5.48xlarge", gpus_per_node=8)

RANK = RankFacts(
    rank=0,
    host="w-0",
    device="NVIDIA H100 80GB HBM3",
    driver="580.126.16",
    cuda="13.2",
    networks=("efa", "libfabric"),
    efa_bytes=26_000_000_000,
    read_sha256=SHA,
)
ALL_REDUCE = AllReduceFacts(
    backend="nccl", size_bytes=1 << 30, seconds=0.005, bus_bytes_per_second=380e9, is_correct=True
)
FABRIC = FabricFacts(
    ranks=tuple(RANK.model_copy(update={"rank": rank, "host": f"w-{rank // 8}"}) for rank in range(16)),
    all_reduce=ALL_REDUCE,
    written_sha256=SHA,
)
OBJECTS = ObjectFacts(
    bucket="checkpoints",
    written_sha256=SHA,
    read_sha256=SHA,
    foreign_key="platform/probe",
    foreign_error="AccessDenied",
)
NETWORK = NetworkFacts(
    allowed="mlflow:5000", allowed_error="", denied="prometheus:9090", denied_error="timed out", denied_is_known=True
)
TRAINING = TrainingFacts(
    status="done",
    ranks=16,
    steps=120,
    total_steps=120,
    first_loss=2.3,
    last_loss=0.2,
    killed_rank=1,
    starts=(0, 20),
    resumed_loss=1.1,
    test_accuracy=0.97,
)
TRACKING = TrackingFacts(uri="http://mlflow:5000", run_id="r1", status="FINISHED", last_step=120)

WORKLOAD: Manifest = {
    "spec": {"podSets": [{"name": "head", "count": 1}, {"name": "workers", "count": 2}]},
    "status": {
        "conditions": [{"type": "Admitted", "status": "True"}],
        "admission": {"podSetAssignments": [{"name": "head", "count": 1}, {"name": "workers", "count": 2}]},
    },
}


@dataclass
class Told:
    """The findings of the checks that need the job, by name."""

    findings: dict[str, Finding] = field(default_factory=dict)

    def take(self, result: Result) -> None:
        self.findings[result.check.name] = result.finding

    def of(self, verdict: str) -> set[str]:
        return {name for name, finding in self.findings.items() if finding.verdict == verdict}


def reported(**parts: FabricFacts | ObjectFacts | NetworkFacts | TrainingFacts | TrackingFacts) -> JobReport:
    """A report of a healthy cluster, some of whose parts are replaced."""
    healthy = {"fabric": FABRIC, "objects": OBJECTS, "network": NETWORK, "training": TRAINING, "tracking": TRACKING}
    facts = {**healthy, **parts}
    names: tuple[Part, ...] = ("objects", "network", "fabric", "training", "tracking")
    return JobReport(parts={name: PartReport(part=name, seconds=1.0, facts=facts[name]) for name in names})


def judge(
    report: JobReport,
    *,
    shape: JobShape = SHAPE,
    workload: Manifest | None = WORKLOAD,
    state: JobState | None = DONE,
    trouble: str = "",
    in_prometheus: bool = True,
) -> Told:
    told = Told()
    job = SuiteJob(name="probe", manifests=(), shape=shape, group=None, dollars_per_hour=None)
    checks = JobChecks(
        api=_NoApi(),
        context=context_on(target()),
        job=job,
        limits=Limits(admission=1, end=1),
        runner=Runner(CHECKS, told.take),
        has_fake_nodes=False,
        steps_in_prometheus=lambda: judged(holds=in_prometheus, expected="steps", found="steps"),
        keep=False,
    )
    end = JobEnd(state=state, workload=workload, report=report, trouble=trouble)
    checks.judge(Evidence(end=end))
    return told


class _NoApi(KubernetesApi):
    """Judging asks nobody."""

    def __init__(self) -> None:
        """Connect to nothing."""
