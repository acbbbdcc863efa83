"""What the suite's job has shown, and why it has not shown the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from infra.spec.errors import PlatformError
from infra.spec.manifest import Manifest
from infra.spec.section import Section
from training.cluster.conformance.check import NotApplicableError
from training.cluster.conformance.following import JobEnd
from training.cluster.objects import has_condition
from training.conformance.facts import FabricFacts, NetworkFacts, ObjectFacts, Part, TrackingFacts, TrainingFacts

_Facts = TypeVar("_Facts", bound=Section)

_FAKE = "the nodes are fake: the queue admitted the job, and its pods do not run"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known after the job.

    Attributes:
        end: how it ended, as far as it could be followed; None if it was not submitted.
        trouble: why it was not submitted; empty if it was.
        is_fake: its pods do not run, because no container does on its nodes.
    """

    end: JobEnd | None
    trouble: str = ""
    is_fake: bool = False

    @property
    def workload(self) -> Manifest | None:
        """The job's Workload."""
        return None if self.end is None else self.end.workload

    @property
    def is_admitted(self) -> bool:
        """Whether the queue has admitted the job."""
        return self.workload is not None and has_condition(self.workload, "Admitted")

    @property
    def why(self) -> str:
        """Why something is missing."""
        return self.trouble if self.end is None else self.end.why

    def fabric(self) -> FabricFacts:
        """The part about the ranks; raises like `_facts`."""
        return self._facts("fabric", FabricFacts)

    def objects(self) -> ObjectFacts:
        """The part about S3; raises like `_facts`."""
        return self._facts("objects", ObjectFacts)

    def network(self) -> NetworkFacts:
        """The part about what a pod reaches; raises like `_facts`."""
        return self._facts("network", NetworkFacts)

    def training(self) -> TrainingFacts:
        """The part about the run; raises like `_facts`."""
        return self._facts("training", TrainingFacts)

    def tracking(self) -> TrackingFacts:
        """The part about MLflow; raises like `_facts`."""
        return self._facts("tracking", TrackingFacts)

    def seconds(self, part: Part) -> float:
        """The time that a part took."""
        report = None if self.end is None else self.end.report.parts.get(part)
        return 0.0 if report is None else report.seconds

    def _facts(self, part: Part, kind: type[_Facts]) -> _Facts:
        """The facts of a part.

        Raises:
            NotApplicableError: no container runs on the nodes.
            PlatformError: the part failed, or the job did not come to it.
        """
        report = None if self.end is None else self.end.report.parts.get(part)
        if report is None and self.is_fake and self.is_admitted:
            raise NotApplicableError(_FAKE)
        if report is None:
            raise PlatformError(f"the job has no report of this part: {self.why}")
        if not isinstance(report.facts, kind):
            raise PlatformError(f"this part of the job failed: {report.error or 'it reported other facts'}")
        return report.facts
