"""What the program in the job reports: a line of its output for each part, which the job's log brings to whoever judges it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import Field, ValidationError

from infra.spec.section import Section

FABRIC_FILE: Final = "fabric.json"
"""File in which rank 0 leaves the facts of the fabric part."""

_MARK = "conformance: "

Part = Literal["objects", "network", "fabric", "training", "tracking"]


class RankFacts(Section):
    """A rank of the all-reduce."""

    rank: int = Field(description="Number of the rank.")
    host: str = Field(description="Name of its pod.")
    device: str = Field(description="Name of its GPU, or cpu.")
    driver: str = Field("", description="Version of the NVIDIA driver; empty without a GPU.")
    cuda: str = Field("", description="CUDA that PyTorch was built for; empty for a CPU build.")
    networks: tuple[str, ...] = Field((), description="Networks that NCCL's log names, e.g. efa or socket.")
    efa_bytes: int | None = Field(
        None, description="Bytes that the node's EFA devices sent meanwhile; null: no counters in the pod."
    )
    read_sha256: str = Field(description="Hash of what it read from the shared file system.")


class AllReduceFacts(Section):
    """The measured all-reduce."""

    backend: Literal["nccl", "gloo"] = Field(description="Backend of torch.distributed.")
    size_bytes: int = Field(description="Size of each rank's buffer.")
    seconds: float = Field(description="Median time of one all-reduce.")
    bus_bytes_per_second: float = Field(description="Bus bandwidth as nccl-tests defines it.")
    is_correct: bool = Field(description="Whether every element had the right sum.")


class FabricFacts(Section):
    """The ranks, their all-reduce, and the file that rank 0 wrote for all of them."""

    ranks: tuple[RankFacts, ...] = Field(description="All ranks.")
    all_reduce: AllReduceFacts = Field(description="Their all-reduce.")
    written_sha256: str = Field(description="Hash of what rank 0 wrote to the shared file system.")

    @property
    def hosts(self) -> frozenset[str]:
        """Names of the pods."""
        return frozenset(one.host for one in self.ranks)

    @property
    def has_gpus(self) -> bool:
        """Whether the ranks computed on GPUs."""
        return all(one.device != "cpu" for one in self.ranks)


class ObjectFacts(Section):
    """An object of the team in S3, and one of another team."""

    bucket: str = Field(description="The bucket.")
    endpoint: str = Field("", description="Endpoint in place of AWS's; empty: AWS.")
    written_sha256: str = Field(description="Hash of what was written.")
    read_sha256: str = Field(description="Hash of what was read back.")
    foreign_key: str = Field("", description="Key of another team that was written to; empty: there is no other team.")
    foreign_error: str = Field("", description="Error code of that attempt; empty: it was accepted.")


class NetworkFacts(Section):
    """A server that the team's pods may reach, and one that they may not."""

    allowed: str = Field(description="Host and port of the first.")
    allowed_error: str = Field(description="Why it was not reached; empty: it was.")
    denied: str = Field(description="Host and port of the second.")
    denied_error: str = Field(description="Why it was not reached; empty: it was.")
    denied_is_known: bool = Field(description="Whether its name has an address.")


class TrainingFacts(Section):
    """A run in which one rank was killed."""

    status: str = Field(description="How the run ended; empty if it has not.")
    ranks: int = Field(description="World size.")
    steps: int = Field(description="Last step.")
    total_steps: int = Field(description="Steps that the run was to have.")
    first_loss: float = Field(description="Mean loss of its first steps.")
    last_loss: float = Field(description="Mean loss of its last steps.")
    killed_rank: int | None = Field(None, description="The rank that was killed; null: none was.")
    starts: tuple[int, ...] = Field(description="Step from which each start of the ranks continued.")
    resumed_loss: float | None = Field(None, description="Mean loss of the first steps after the last restart.")
    test_accuracy: float | None = Field(None, description="Accuracy on the test split.")
    message: str = Field("", description="Why it failed.")


class TrackingFacts(Section):
    """The run in MLflow."""

    uri: str = Field(description="The tracking server.")
    run_id: str = Field("", description="The run; empty: there is none.")
    status: str = Field("", description="Its status.")
    last_step: int = Field(0, description="Newest step of its loss.")
    message: str = Field("", description="Why it could not be read.")


class PartReport(Section):
    """One part of the program, done or failed."""

    part: Part = Field(description="Name of the part.")
    seconds: float = Field(description="Time that it took.")
    error: str = Field("", description="Why it failed; empty if it did not.")
    facts: FabricFacts | ObjectFacts | NetworkFacts | TrainingFacts | TrackingFacts | None = Field(
        None, description="What it found."
    )


@dataclass(kw_only=True)
class JobReport:
    """What the job has reported so far.

    Attributes:
        parts: reports by the name of the part.
    """

    parts: dict[Part, PartReport] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Take a line of the job's output; returns whether it was a report."""
        found = read_line(line)
        if found is not None:
            self.parts[found.part] = found
        return found is not None


def write_line(report: PartReport) -> str:
    """A report as one line of output, without its line break."""
    return _MARK + json.dumps(report.model_dump(mode="json"), separators=(",", ":"))


def read_line(line: str) -> PartReport | None:
    """The report in a line of output; None if it has none, or one of another version."""
    if not line.startswith(_MARK):
        return None
    try:
        record: Mapping[str, object] = json.loads(line.removeprefix(_MARK))
        return PartReport.model_validate(record)
    except (ValueError, ValidationError):
        return None


def collected(lines: Iterable[str]) -> JobReport:
    """The reports in a job's output."""
    report = JobReport()
    for line in lines:
        report.take(line)
    return report
