"""The environment's NetworkPolicies on real nodes: who reaches whom, with them and without them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

import psutil
import pytest

from infra.lifecycle.sandbox.node.leftovers import node_folder
from infra.lifecycle.sandbox.node.policies.enforcer import Settings
from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes_jobs import is_ready
from tests.engines.real_nodes import Pods
from tests.platform_charts.objects.samples import all_of, of_kind
from tests.waiting import wait_until

NAMESPACES = ("research", "platform", "mlflow", "default", "kuberay-system")
PORTS = (6379, 8265, 10001, 5000, 8080)
_PATIENT = 20
"""Seconds in which a busy machine opens a connection that nothing refuses."""

_RAY = {"ray.io/is-ray-node": "yes"}
_LABELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "head": ("research", {**_RAY, "ray.io/node-type": "head"}),
    "worker": ("research", {**_RAY, "ray.io/node-type": "worker"}),
    "submitter": ("research", {"job-name": "digits"}),
    "foreigner": ("platform", {**_RAY, "ray.io/node-type": "head"}),
    "mlflow": ("mlflow", {"app.kubernetes.io/name": "mlflow"}),
    "stranger": ("default", {}),
}
_NODES = {"worker": "a10g", "foreigner": "a10g"}

_SERVE = "".join(f"busybox httpd -p {port} -h /; " for port in PORTS) + "exec busybox sleep 10000"

_ALLOWED = (
    ("worker", "head", 6379),
    ("worker", "head", 8265),
    ("head", "worker", 10001),
    ("worker", "worker", 5000),
    ("submitter", "head", 8265),
    ("worker", "mlflow", 5000),
    ("foreigner", "mlflow", 5000),
    ("worker", "dns", 53),
    ("worker", "kubernetes.default.svc", 443),  # Ray's autoscaler uses it, with the rights of its account
    ("stranger", "stranger", 8080),
)
_REFUSED = (
    ("foreigner", "head", 6379),
    ("foreigner", "head", 8265),
    ("foreigner", "head", 10001),
    ("foreigner", "worker", 8080),
    ("head", "foreigner", 6379),
    ("stranger", "head", 8265),
    ("stranger", "mlflow", 5000),
    ("submitter", "head", 6379),
    ("worker", "mlflow", 8080),
    ("worker", "stranger", 8080),
    ("mlflow", "head", 8265),
    ("worker", "kubelet", 10250),
    ("worker", "api", 0),
)

Connection = tuple[str, str, int]


class Cluster:
    """The pods of the test by name, and the addresses that they try."""

    def __init__(self, pods: Pods) -> None:
        self.nodes = pods
        self.pods: dict[str, Manifest] = {}
        for name in NAMESPACES:
            pods.cluster.apply(api_object("v1", "Namespace", name), manager="test")
        for name in _LABELS:
            self.pods[name] = self.apply(name, _SERVE)
        self.pods = {name: pods.await_phase(pod, "Running") for name, pod in self.pods.items()}
        kubelet = next(one for one in pods.cluster.items("v1", "Node") if one["metadata"]["name"] == "system-0")
        endpoint = pods.cluster.read(api_object("v1", "Endpoints", "kubernetes", namespace="default"))
        assert endpoint is not None
        self.api_port = int(endpoint["subsets"][0]["ports"][0]["port"])
        host = endpoint["subsets"][0]["addresses"][0]["ip"]
        self.addresses = {
            "dns": host.removesuffix(".1") + ".2",
            "kubelet": next(one["address"] for one in kubelet["status"]["addresses"] if one["type"] == "InternalIP"),
            "api": host,
            **{name: pod["status"]["podIP"] for name, pod in self.pods.items()},
        }

    def apply(self, name: str, script: str, *, like: str | None = None) -> Manifest:
        """Create a pod with the namespace and labels of one of the test's."""
        namespace, labels = _LABELS[like or name]
        pod = self.nodes.pod(
            name, script, node=_NODES.get(like or name, "system"), tolerations=[{"operator": "Exists"}]
        )
        pod["metadata"] |= {"namespace": namespace, "labels": dict(labels)}
        return self.nodes.cluster.apply(pod)

    def connects(self, connection: Connection, *, seconds: int = 3) -> bool:
        return bool(self.opened([connection], seconds=seconds))

    def opened(self, connections: Sequence[Connection], *, seconds: int = 3) -> list[Connection]:
        """The connections that pods can open, of those given; each pod tries all of its own at once."""
        said = {}
        for source in dict.fromkeys(source for source, _, _ in connections):
            tries = (
                f"busybox timeout {seconds} /bin/bash -c 'exec 3<>/dev/tcp/{self._address(one)}' && echo +{number}+ &"
                for number, one in enumerate(connections)
                if one[0] == source
            )
            said[source] = self.nodes.run(self.pods[source], "/bin/bash", "-c", "\n".join([*tries, "wait"]))
        return [one for number, one in enumerate(connections) if f"+{number}+" in said[one[0]]]

    def _address(self, connection: Connection) -> str:
        _, target, port = connection
        return f"{self.addresses.get(target, target)}/{port or self.api_port}"


def shipped() -> list[Manifest]:
    """The NetworkPolicies of the dev environment in the namespaces of the test."""
    found = of_kind(all_of("dev"), "NetworkPolicy")
    return [one for one in found if one["metadata"]["namespace"] in NAMESPACES]


@pytest.fixture(scope="module")
def cluster(real_nodes: Pods) -> Iterator[Cluster]:
    found = Cluster(real_nodes)
    yield found
    real_nodes.remove(*found.pods.values())


@pytest.fixture
def isolated(cluster: Cluster) -> Iterator[Cluster]:
    policies = shipped()
    with cluster.nodes.applied(*policies):
        wait_until(lambda: not cluster.connects(("stranger", "mlflow", 5000), seconds=1))
        yield cluster


def test_the_environment_s_policies_hold_and_without_them_everything_is_reached(isolated: Cluster) -> None:
    assert isolated.opened(_REFUSED) == []
    assert isolated.opened(_ALLOWED, seconds=_PATIENT) == list(_ALLOWED)
    isolated.nodes.remove(*shipped())
    wait_until(lambda: isolated.connects(("stranger", "mlflow", 5000), seconds=1))
    assert isolated.opened(_REFUSED, seconds=_PATIENT) == list(_REFUSED)


def test_an_operator_beside_the_nodes_is_treated_as_its_pod(isolated: Cluster) -> None:
    def opens(port: int) -> bool:
        script = f"exec 3<>/dev/tcp/{isolated.addresses['head']}/{port}"
        ended = subprocess.run([*isolated.nodes.services, "timeout", "2", "bash", "-c", script], check=False)
        return ended.returncode == 0

    wait_until(lambda: opens(8265))  # KubeRay polls the dashboard
    assert not opens(6379)
    isolated.nodes.remove(*shipped())
    wait_until(lambda: opens(6379))


def test_a_new_pod_is_isolated_before_its_first_packet(isolated: Cluster) -> None:
    target = f"/dev/tcp/{isolated.addresses['stranger']}/8080"
    known = f"/dev/tcp/{isolated.addresses['mlflow']}/5000"
    tries = f"for i in {{1..6}}; do busybox timeout 1 bash -c 'exec 3<>{target}' && echo escaped; done; "
    pod = isolated.apply("fresh", f"{tries} exec 3<>{known} && echo allowed", like="worker")
    isolated.nodes.await_phase(pod, "Succeeded")
    said = isolated.nodes.log(pod)
    isolated.nodes.remove(pod)
    assert "allowed" in said
    assert "escaped" not in said


def test_the_kubelet_probes_a_pod_that_denies_everything(isolated: Cluster) -> None:
    pod = isolated.nodes.pod("probed", "exec busybox httpd -f -p 9999 -h /", node="system")
    pod["metadata"]["namespace"] = "research"
    pod["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 9999}, "periodSeconds": 1}
    with isolated.nodes.applied(pod):
        isolated.nodes.cluster.await_(pod, is_ready, what="Ready", seconds=60)


def test_policies_hold_while_their_enforcer_is_killed_and_change_when_it_is_back(isolated: Cluster) -> None:
    for process in _enforcers(isolated.nodes):
        process.send_signal(signal.SIGKILL)
    assert isolated.opened(_REFUSED[:4]) == []
    isolated.nodes.remove(*shipped())
    wait_until(lambda: isolated.opened(_REFUSED[:4]) == list(_REFUSED[:4]))


def _enforcers(pods: Pods) -> list[psutil.Process]:
    folder = str(node_folder(pods.folder))
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if Settings.__module__ in (line := process.info["cmdline"] or []) and line[-1].startswith(folder)
    ]
