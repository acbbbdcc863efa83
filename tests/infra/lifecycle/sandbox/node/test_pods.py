"""Pods on real nodes: they run, are reached through the API server, and reach each other."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import CoreV1Api
from kubernetes.stream import portforward
from kubernetes.utils.quantity import parse_quantity
from urllib3 import PoolManager
from urllib3.exceptions import InsecureRequestWarning

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest, api_object
from infra.spec.node_group import resolve_node_groups
from infra.spec.settings import load_environment
from tests.engines.real_nodes import Pods

_SERVE = "busybox mkdir /tmp/www && echo hello from $HOSTNAME >/tmp/www/index.html && exec busybox httpd -f -p 8080 -h /tmp/www"
_FETCH = r"until exec 3<>/dev/tcp/{}; do busybox sleep 0.2; done; printf 'GET / HTTP/1.0\r\n\r\n' >&3; busybox cat <&3"

_SCRATCH: dict[str, Any] = {"volumes": [{"name": "tmp", "emptyDir": {}}]}


@pytest.fixture
def restricted(real_nodes: Pods) -> Iterator[Pods]:
    """The nodes, with a namespace `default` that enforces Pod Security's level `restricted`; its pods are deleted afterwards."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    real_nodes.cluster.apply(api_object("v1", "Namespace", "default", labels=labels), manager="test")
    yield real_nodes
    real_nodes.remove(*real_nodes.cluster.items("v1", "Pod", namespace="default"))


def server(pods: Pods, name: str = "server", **spec: Any) -> Manifest:  # noqa: ANN401 - fields of a PodSpec
    """A pod on the GPU node that answers HTTP at port 8080; it runs."""
    made = pods.pod(name, _SERVE, node="a10g", tolerations=[{"operator": "Exists"}], **_SCRATCH, **spec)
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    pods.cluster.apply(made)
    return pods.await_phase(made, "Running")


def test_a_restricted_pod_runs_and_its_log_comes_through_the_api_server(restricted: Pods) -> None:
    script = "echo $UID; busybox touch /file || echo read-only; busybox grep CapEff /proc/self/status"
    pod = restricted.pod("whoami", script, node="system")
    restricted.cluster.apply(pod)
    restricted.await_phase(pod, "Succeeded")
    said = restricted.log(pod).splitlines()  # standard output and error come in any order
    assert {"1000", "read-only", "CapEff:\t0000000000000000"} < set(said)


def test_exec_and_port_forward_reach_a_running_pod(restricted: Pods) -> None:
    pod = server(restricted)
    assert restricted.run(pod, "/bin/busybox", "hostname") == "server\n"
    with restricted.websocket_client() as client:
        connect = CoreV1Api(client).connect_get_namespaced_pod_portforward
        forwarded = portforward(connect, "server", "default", ports="8080")
    connection = forwarded.socket(8080)
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    connection.settimeout(30)
    answer = b""
    while part := connection.recv(4096):
        answer += part
    assert answer.endswith(b"hello from server\n")


def test_a_pod_reaches_one_on_another_node_by_the_name_of_its_service(restricted: Pods) -> None:
    server(restricted)
    client = restricted.pod("client", _FETCH.format("web.default.svc.cluster.local/80"), node="system")
    spec = {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]}
    with restricted.applied(api_object("v1", "Service", "web", namespace="default", spec=spec)):
        restricted.cluster.apply(client)
        restricted.await_phase(client, "Succeeded")
    assert restricted.log(client).endswith("hello from server")


def test_gpus_that_do_not_exist_are_counted_and_assigned(restricted: Pods) -> None:
    def asking(name: str, gpus: int) -> Manifest:
        devices = {"nvidia.com/gpu": str(gpus), "vpc.amazonaws.com/efa": "1", "hugepages-2Mi": "1Gi"}
        resources = {"limits": {**devices, "cpu": "40", "memory": "100Gi"}}
        tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        script = "echo $RTP_FAKE_NVIDIA_COM_GPU; exec busybox sleep 1000"
        return restricted.pod(name, script, node="a10g", resources=resources, tolerations=tolerations)

    first, second = asking("two", 2), asking("four", 4)
    restricted.cluster.apply(first)
    assert restricted.await_phase(first, "Running")["spec"]["nodeName"] == "a10g-0"
    assert len(restricted.log(first).strip().split(",")) == 2
    restricted.cluster.apply(second)
    waiting = restricted.cluster.await_(second, lambda pod: "conditions" in pod["status"], what="seen by the scheduler")
    assert "Insufficient nvidia.com/gpu" in waiting["status"]["conditions"][0]["message"]


def test_a_real_node_has_the_resources_labels_and_taints_of_its_group(real_nodes: Pods) -> None:
    groups = {group.name: group for group in resolve_node_groups(load_environment("dev"), catalog=load_catalog()).all()}
    for node in real_nodes.cluster.items("v1", "Node"):
        group = groups[node["metadata"]["labels"]["ray-train-platform/group"]]
        offered = {name: parse_quantity(amount) for name, amount in node["status"]["allocatable"].items()}
        expected = {**group.allocatable, **group.expected_devices}
        assert offered.items() >= {name: parse_quantity(amount) for name, amount in expected.items()}.items()
        assert node["metadata"]["labels"].items() >= group.labels.items()
        assert node["spec"].get("taints", []) == [
            {key: value for key, value in taint.model_dump().items() if value is not None} for taint in group.taints
        ]


def test_nobody_without_a_certificate_or_token_reaches_a_kubelet(real_nodes: Pods) -> None:
    (address,) = (
        one["address"]
        for one in real_nodes.cluster.items("v1", "Node")[0]["status"]["addresses"]
        if one["type"] == "InternalIP"
    )
    with PoolManager(cert_reqs="CERT_NONE") as pool, warnings.catch_warnings():  # its certificate is self-signed
        warnings.simplefilter("ignore", InsecureRequestWarning)
        assert pool.request("GET", f"https://{address}:10250/pods", retries=False).status == 401
