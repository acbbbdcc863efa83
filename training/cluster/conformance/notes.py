"""What stood in for hardware or services while the suite ran, so that nobody takes its result for that of a real cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training.cluster.conformance.evidence import Evidence
from training.cluster.conformance.judges.nodes import NodeFacts
from training.cluster.conformance.judges.shape import JobShape
from training.conformance.facts import FabricFacts, ObjectFacts


def notes(nodes: Sequence[NodeFacts], evidence: Evidence | None, shape: JobShape) -> str:
    """In words; empty if nothing did."""
    return "; ".join(_notes(nodes, evidence, shape))


def _notes(nodes: Sequence[NodeFacts], evidence: Evidence | None, shape: JobShape) -> Iterator[str]:
    fakes = sum(one.is_fake for one in nodes)
    if fakes:
        yield f"{fakes} of {len(nodes)} nodes are fake: no container starts there"
    devices = sum(one.has_fake_devices for one in nodes)
    if devices:
        yield f"the devices of {devices} nodes are what the sandbox says, and do not exist"
    if evidence is None or evidence.end is None:
        return
    if shape.pods < 2:
        yield "the job had one node, because its group cannot have two: nothing between nodes was checked"
    for report in evidence.end.report.parts.values():
        match report.facts:
            case FabricFacts() as fabric if shape.gpus and not fabric.has_gpus:
                yield "the GPUs of the job do not exist: its ranks computed on CPUs, with gloo"
            case ObjectFacts() as objects if objects.endpoint:
                yield f"S3 is a stand-in at {objects.endpoint}"
