"""An interactive session on pods that run: a task uses its worker, and the session ends when nobody does."""

from __future__ import annotations

from tests.training.on_nodes.cluster import NodeCluster

_TASK = "import ray; ray.init(); print('ran on', ray.get(ray.remote(num_gpus=1)(lambda: ray.util.get_node_ip_address()).remote()))"


def test_a_session_runs_a_task_and_ends_when_it_is_not_used(nodes: NodeCluster) -> None:
    with nodes.job("notes", "--gpus", "1", "--idle", "1m", command="cluster") as session:
        assert session.end() == 0, session.said
        (head,), (worker,) = session.pods("head"), session.pods("worker")
        said = nodes.sandbox.pods.run(head, "python", "-c", _TASK)
        assert f"ran on {worker['status']['podIP']}" in said
        session.await_(session.has_no_pods, what="ended")
    assert session.read()["status"]["jobStatus"] == "SUCCEEDED"
    nodes.delete(session)
