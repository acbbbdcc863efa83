"""Judges what jobs read and write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from training.cluster.conformance.check import Finding, judged, skipped
from training.cluster.conformance.judges.ranks import troubles
from training.conformance.facts import FabricFacts, ObjectFacts, RankFacts

_SHOWN = 12
_DENIED = frozenset({"AccessDenied", "403"})


@dataclass(frozen=True, kw_only=True)
class VolumeFacts:
    """The volume of a team's runs.

    Attributes:
        team: the team.
        volume: name of the volume that the team's claim is bound to; empty if there is none.
        source: what the volume mounts.
        reserved_for: `namespace/claim` that alone may have the volume; empty if any may.
        claim: `namespace/claim` of the team.
    """

    team: str
    volume: str
    source: str
    reserved_for: str
    claim: str


def volumes(found: Sequence[VolumeFacts]) -> Finding:
    """Every team's claim is bound to a volume that is reserved for it, with a source that no other team's has."""
    sources = Counter(one.source for one in found)
    wrong = []
    for one in found:
        if not one.volume:
            wrong.append(f"{one.claim} is bound to no volume")
        elif one.reserved_for != one.claim:
            wrong.append(f"volume {one.volume} of {one.claim} is reserved for {one.reserved_for or 'nobody'}")
        elif sources[one.source] > 1:
            wrong.append(f"volume {one.volume} of {one.claim} mounts {one.source}, as another team's does")
    expected = "a volume with an access point of its own, reserved for the team's claim"
    return judged(holds=not wrong, expected=expected, found="; ".join(wrong) or f"{len(found)} teams, as expected")


def files(facts: FabricFacts) -> Finding:
    """All ranks read what rank 0 wrote."""
    expected = f"sha256 {facts.written_sha256[:_SHOWN]} in every pod"
    if len(facts.hosts) < 2:
        return skipped("the job has one pod, which reads its own cache", expected=expected)

    def find(one: RankFacts) -> str:
        return "" if one.read_sha256 == facts.written_sha256 else one.read_sha256[:40]

    wrong = troubles(facts.ranks, find)
    return judged(holds=not wrong, expected=expected, found=wrong or f"in all {len(facts.hosts)} pods")


def objects(facts: ObjectFacts) -> Finding:
    """The object that was read is the one that was written."""
    where = f"{facts.endpoint or 'AWS'}, bucket {facts.bucket}"
    return judged(
        holds=facts.read_sha256 == facts.written_sha256,
        expected=f"sha256 {facts.written_sha256[:_SHOWN]}",
        found=f"sha256 {facts.read_sha256[:_SHOWN]} from {where}",
    )


def foreign_objects(facts: ObjectFacts) -> Finding:
    """A write to another team's folder was denied."""
    expected = f"AccessDenied for s3://{facts.bucket}/{facts.foreign_key}" if facts.foreign_key else "AccessDenied"
    if not facts.foreign_key:
        return skipped("the stack has no other team", expected=expected)
    if facts.endpoint:
        reason = f"the S3 endpoint is {facts.endpoint}, a stand-in for AWS that checks no permissions"
        return skipped(reason, expected=expected)
    return judged(
        holds=facts.foreign_error in _DENIED, expected=expected, found=facts.foreign_error or "the write was accepted"
    )
