"""Following a job on a real API server over a network that breaks.

`test_cluster_queue` follows one from the queue to its end, with the real operators.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.kube.connection import connect_with
from infra.lifecycle.sandbox.control_plane import ControlPlane
from tests.engines.tcp_proxy import proxied
from tests.training.cluster.follower import Follower
from tests.training.cluster.team_cluster import TeamCluster
from training.cluster import follow as following
from training.errors import ExitStatus


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_POLL_SECONDS", 0.1)


def test_a_follower_reconnects_after_a_broken_network_and_the_job_keeps_running(
    team_cluster: TeamCluster, name: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    team_cluster.submit(name)
    team_cluster.starts(name)
    with proxied(control_plane.kubeconfig, tmp_path) as (proxy, kubeconfig):
        follower = Follower(connect_with(kubeconfig), namespace=team_cluster.namespace, name=name)
        follower.sees("running")
        proxy.cut()
        follower.sees("connection lost, the job keeps running")
        proxy.restore()
        follower.sees("reconnected after")
        assert team_cluster.job(name) is not None
        team_cluster.ends(name)
        assert follower.end().status is ExitStatus.DONE
