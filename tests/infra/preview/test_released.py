"""The stacks of the last release against this checkout's program, recorded by the release's own code."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.infra.aws.graphs import ENVIRONMENTS, graph
from tests.infra.preview.released import full_hash, read_released, record_at, released_commit
from tests.infra.preview.snapshot import Snapshot, losses, snapshot_of, stores_of, successor

REMOVED: Mapping[str, str] = {}
"""Resources of the last release that an update deletes on purpose, each with the reason."""


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, Snapshot]:
    commit = released_commit()
    if full_hash(commit) is None:
        pytest.skip(f"commit {commit[:7]} of the last release is not in this clone: git fetch --unshallow")
    return record_at(commit)


@pytest.mark.extended
def test_the_files_are_what_the_releases_own_code_records(recorded: Mapping[str, Snapshot]) -> None:
    for environment in ENVIRONMENTS:
        assert read_released(environment) == stores_of(recorded[environment]), environment


def test_an_update_from_the_last_release_loses_no_state(recorded: Mapping[str, Snapshot]) -> None:
    """Every resource stays, or has an alias, or is removed on purpose."""
    for environment in ENVIRONMENTS:
        after = snapshot_of(graph(environment))
        assert list(losses(recorded[environment], after)) == [], environment
        gone = {name for name in recorded[environment] if successor(name, after) is None}
        assert gone - REMOVED.keys() == set(), environment
