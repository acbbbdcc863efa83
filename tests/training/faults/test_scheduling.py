"""Ranks that do not fit a Ray cluster: the run ends at a deadline with what is missing. Ray itself would wait for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from observability.runlog import Notice, RunEnded, WorkersFailed, read_all, select
from tests.distribution import RAY
from tests.engines import report_table
from tests.engines.ray_cluster import short_folder
from tests.training.runs import small_settings, supervised
from training import supervisor
from training.config.schema import ScaleSettings
from training.errors import TrainingFailedError
from training.launch.ray_train import RayLauncher
from training.rundir import RunDirectory

pytestmark = pytest.mark.xdist_group(RAY)


@pytest.fixture
def small_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayLauncher]:
    """A Ray cluster with one CPU, whose attempts to start a group end after a second."""
    before = dict(os.environ)
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "1"
    with short_folder() as scratch:
        yield RayLauncher(ScaleSettings(workers=1), scratch=scratch)
    os.environ.clear()
    os.environ.update(before)


def test_a_request_that_never_fits_ends_at_its_deadline_with_what_is_missing(
    small_cluster: RayLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "make_launcher", lambda *_, **__: small_cluster)
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    # The first attempt also starts Ray, which may take long; the delay between the later ones exceeds what is left of the deadline.
    settings = small_settings(
        scale={"launcher": "ray", "workers": 2},
        recovery={"scheduling": {"delay": 0.1, "longest_delay": 0.1, "deadline": 3}},
    )
    message = (
        r"^the cluster has too few resources for the ranks\n"
        r"requested: 2 ranks with CPU 1 each; available: room for 1 \(127\.0\.0\.1 has CPU 1, free CPU \d\)\n"
        r"No restart within 3 s of the first start \(recovery\.scheduling\.deadline\)\."
    )
    with pytest.raises(TrainingFailedError, match=message) as raised:
        supervised(settings, run)
    report_table.ran("Ray cluster")
    assert "scale.workers" in raised.value.remedy
    events = read_all(run.path)
    failed = select(events, WorkersFailed)
    assert {one.cause for one in failed} == {"scheduling"}
    assert [one.restarts for one in failed] == [True] * (len(failed) - 1) + [False]
    for notice in select(events, Notice):
        assert "for missing resources, within 3.0 s)" in notice.message
    assert select(events, RunEnded)[-1].status == "failed"
