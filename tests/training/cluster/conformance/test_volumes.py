"""Volumes of the teams' runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training.cluster.conformance.judges.storage import VolumeFacts, volumes

RESEARCH = VolumeFacts(
    team="research", volume="runs-research", source="fs-1::fsap-1", reserved_for="research/runs", claim="research/runs"
)
PLATFORM = replace(
    RESEARCH,
    team="platform",
    volume="runs-platform",
    source="fs-1::fsap-2",
    reserved_for="platform/runs",
    claim="platform/runs",
)


def test_volumes_of_their_own_pass() -> None:
    assert volumes([RESEARCH, PLATFORM]).verdict == "passed"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([RESEARCH, replace(PLATFORM, volume="")], "platform/runs is bound to no volume"),
        (
            [RESEARCH, replace(PLATFORM, reserved_for="research/runs")],
            "volume runs-platform of platform/runs is reserved for research/runs",
        ),
        ([RESEARCH, replace(PLATFORM, reserved_for="")], "is reserved for nobody"),
        (
            [RESEARCH, replace(PLATFORM, source=RESEARCH.source)],
            "volume runs-platform of platform/runs mounts fs-1::fsap-1, as another team's does",
        ),
    ],
)
def test_a_volume_that_another_team_could_have_is_found(found: list[VolumeFacts], said: str) -> None:
    finding = volumes(found)
    assert finding.verdict == "failed"
    assert said in finding.found
