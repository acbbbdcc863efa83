"""Volumes of the teams' runs."""

from __future__ import annotations

from dataclasses import replace

from training.cluster.conformance.judges.storage import VolumeFacts, volumes


def facts(team: str, access_point: int) -> VolumeFacts:
    """The volume of a team, of its own access point."""
    where = {"volume": f"runs-{team}", "source": f"fs-1::fsap-{access_point}"}
    return VolumeFacts(team=team, reserved_for=f"{team}/runs", claim=f"{team}/runs", **where)


def test_a_volume_that_another_team_could_have_is_found_and_volumes_of_their_own_pass() -> None:
    research, platform = facts("research", 1), facts("platform", 2)
    assert volumes([research, platform]).verdict == "passed"
    of_it = "volume runs-platform of platform/runs"
    for changed, said in (
        (replace(platform, volume=""), "platform/runs is bound to no volume"),
        (replace(platform, reserved_for="research/runs"), f"{of_it} is reserved for research/runs"),
        (replace(platform, reserved_for=""), "is reserved for nobody"),
        (replace(platform, source=research.source), f"{of_it} mounts fs-1::fsap-1, as another team's does"),
    ):
        finding = volumes([research, changed])
        assert (finding.verdict, said in finding.found) == ("failed", True), finding.found
