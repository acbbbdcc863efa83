"""The early pull of the trainer image on a real API server, with the real scheduler and DaemonSet controller."""

from __future__ import annotations

from infra.spec.cluster_names import GPU_NAMESPACE
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_labels import GPU_TAINT, GROUP_LABEL, START_UP_TAINT
from platform_charts.objects.image_pull import IMAGE_PULL
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_jobs import created
from tests.engines.kubernetes_platform import Environment, in_dev
from tests.training.cluster.team_cluster import wait_until

NEW_NODE = "new-gpu-node"


def nodes_with_the_image(cluster: Cluster) -> set[str]:
    """Names of the nodes that pods of the DaemonSet are assigned to."""
    pods = cluster.items("v1", "Pod", namespace=GPU_NAMESPACE)
    ours = [one for one in pods if one["metadata"]["labels"].get("app.kubernetes.io/name") == IMAGE_PULL]
    return {one["spec"]["nodeName"] for one in ours if "nodeName" in one["spec"]}


def new_node(group: str) -> Manifest:
    """A node as it registers: with the start-up taint, and without devices."""
    taints = [taint.model_dump() for taint in (GPU_TAINT, START_UP_TAINT)]
    resources = {"cpu": "4", "memory": "16Gi", "pods": "20"}
    labels, status = {GROUP_LABEL: group, "kubernetes.io/hostname": NEW_NODE}, {"capacity": resources}
    node = api_object("v1", "Node", NEW_NODE, labels=labels, spec={"taints": taints})
    return {**node, "status": {**status, "allocatable": resources}}


@in_dev
def test_gpu_nodes_and_no_others_get_the_image_and_a_new_one_before_the_gate_opens(environment: Environment) -> None:
    groups = {group.name for group in environment.settings.gpu_groups}
    nodes = environment.cluster.items("v1", "Node")
    expected = {one["metadata"]["name"] for one in nodes if one["metadata"]["labels"].get(GROUP_LABEL) in groups}
    assert expected
    wait_until(lambda: nodes_with_the_image(environment.cluster) == expected)
    with created(environment.cluster, [new_node(environment.settings.gpu_groups[0].name)]):
        wait_until(lambda: NEW_NODE in nodes_with_the_image(environment.cluster))
