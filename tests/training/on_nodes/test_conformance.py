"""The conformance suite on real nodes: its job runs in pods, a rank of it is killed, and every trace of its run is looked for."""

from __future__ import annotations

from pathlib import Path

from infra.spec.manifest import Manifest
from tests.training.cluster.conformance.suites import cases_of
from tests.training.on_nodes.cluster import NodeCluster
from tests.waiting import wait_until
from training.cluster.objects import RAY_JOB

_OUTSIDE = {
    *("fabric.cuda", "fabric.bandwidth", "fabric.efa", "nodes.driver"),
    *("storage.foreign", "metrics.rules", "metrics.alerts"),
}
"""What a sandbox cannot show: GPUs, EFA, AWS's permissions, and rules, which its Prometheus does not evaluate."""


def test_a_sandbox_conforms_but_for_what_it_does_not_have(nodes: NodeCluster, tmp_path: Path) -> None:
    junit, page = tmp_path / "junit.xml", tmp_path / "page.html"
    earlier = {one["metadata"]["name"] for one in _jobs(nodes)}
    done = nodes.run("conformance", "--no-use-gpu", "--junit", str(junit), "--html", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    cases = cases_of(junit.read_text())
    skipped = {name for name, case in cases.items() if case.find("skipped") is not None}
    assert skipped == _OUTSIDE, done.stdout
    assert "rank 1 was killed; starts from steps 0, " in done.stdout
    assert "in all 2 pods" in done.stdout
    assert "<h1>dev</h1>" in page.read_text()
    # Deleted in the foreground: it is there until its pods have ended.
    left = [one for one in _jobs(nodes) if one["metadata"]["name"] not in earlier]
    assert all("deletionTimestamp" in one["metadata"] for one in left)
    wait_until(lambda: earlier >= {one["metadata"]["name"] for one in _jobs(nodes)}, seconds=120)


def _jobs(nodes: NodeCluster) -> list[Manifest]:
    """The jobs of the team."""
    return list(nodes.sandbox.pods.cluster.items(*RAY_JOB, namespace="research"))
