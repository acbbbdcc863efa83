"""The pods KubeRay makes. Whether they are those of the real operator is checked where its binary is at hand."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from infra.spec.manifest import Manifest
from tests.kuberay.cluster import VERSION
from tests.kuberay.expand import expand
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.jobs.targets import job, rendered, target_of, variables

PROD = target_of("prod")
JOB = rendered(job(group="a100"), PROD)
HEAD, *WORKERS, SUBMITTER = expand(JOB)
EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
"""Manifests and their pods, a line each: names, commands, variables, probes, volumes and resources in every variant."""


def test_the_imitated_operator_is_the_releases() -> None:
    assert PROD.release.charts["kuberay-operator"].version == VERSION


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_the_pods_that_kuberay_makes(name: str) -> None:
    assert list(expand(EXAMPLES[name]["manifest"])) == EXAMPLES[name]["pods"]


def test_a_job_is_a_head_its_workers_and_a_submitter() -> None:
    names = [pod["metadata"]["name"] for pod in expand(JOB)]
    assert names == [
        "resnet101-00000-head-00000",
        "resnet101-00000-workers-worker-00000",
        "resnet101-00000-workers-worker-00001",
        "resnet101-00000",
    ]


def test_ray_pods_have_the_labels_that_kuberays_services_select() -> None:
    labels = HEAD["metadata"]["labels"]
    assert labels["ray.io/cluster"] == "resnet101-00000"
    assert labels["ray.io/node-type"] == "head"
    assert labels["ray.io/identifier"] == "resnet101-00000-head"
    assert labels["app.kubernetes.io/name"] == "kuberay"
    assert labels["app.kubernetes.io/created-by"] == "kuberay-operator"


def test_a_worker_waits_for_the_head_under_rays_own_security_context() -> None:
    [waiting] = WORKERS[0]["spec"]["initContainers"]
    assert waiting["name"] == "wait-gcs-ready"
    assert waiting["securityContext"] == WORKERS[0]["spec"]["containers"][0]["securityContext"]
    assert waiting["resources"]["limits"] == {"cpu": "200m", "memory": "256Mi"}


def test_every_container_that_talks_to_ray_has_the_token() -> None:
    pods = expand(JOB)
    containers = [c for pod in pods for c in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]]
    assert all("RAY_AUTH_TOKEN" in {variable["name"] for variable in container["env"]} for container in containers)


def test_ray_is_started_with_the_flags_of_the_template_and_kuberays_own() -> None:
    [command] = WORKERS[0]["spec"]["containers"][0]["args"]
    assert "ulimit -n" in command
    flags = dict(part.removeprefix("--").partition("=")[::2] for part in command.split() if part.startswith("--"))
    assert flags["address"] == "resnet101-00000-head-svc.research.svc.cluster.local:6379"
    assert flags["num-gpus"] == "8"
    assert flags["num-cpus"] == "88"
    assert flags["metrics-export-port"] == "8080"
    assert flags["block"] == ""


def test_the_head_has_no_cpu_for_tasks_though_its_container_has_some() -> None:
    assert "--num-cpus=0 " in HEAD["spec"]["containers"][0]["args"][0]


def test_the_submitter_waits_for_the_dashboard_and_submits_the_entrypoint() -> None:
    container = SUBMITTER["spec"]["containers"][0]
    assert container["command"] == ["/bin/bash", "-ce", "--"]
    assert f"-- {JOB['spec']['entrypoint']} ;" in container["args"][0]
    assert variables(container)["RAY_DASHBOARD_ADDRESS"].endswith("-head-svc.research.svc.cluster.local:8265")


def test_a_submitter_with_a_command_of_its_own_keeps_it() -> None:
    manifest = copy.deepcopy(JOB)
    manifest["spec"]["submitterPodTemplate"]["spec"]["containers"][0]["command"] = ["true"]
    assert expand(manifest)[-1]["spec"]["containers"][0]["command"] == ["true"]


def test_probes_ask_the_agent_and_allow_a_head_more_time() -> None:
    probe = HEAD["spec"]["containers"][0]["livenessProbe"]
    assert probe["httpGet"] == {"path": "/api/healthz", "port": 52365}
    assert (probe["timeoutSeconds"], WORKERS[0]["spec"]["containers"][0]["livenessProbe"]["timeoutSeconds"]) == (5, 2)


def test_expanding_does_not_change_the_manifest() -> None:
    before = copy.deepcopy(JOB)
    expand(JOB)
    assert before == JOB


def bare(**container: Any) -> Manifest:  # noqa: ANN401  # fields of any type
    """The smallest RayCluster somebody could write."""
    spec = {"containers": [{"name": "ray", "image": "ray", **container}]}
    return {
        "kind": "RayCluster",
        "metadata": {"name": "c", "namespace": "n"},
        "spec": {"headGroupSpec": {"template": {"spec": spec}}},
    }


def test_a_head_without_shared_memory_gets_it_in_the_size_of_its_memory() -> None:
    [head] = expand(bare(resources={"limits": {"memory": "2Gi", "cpu": "1500m"}}))
    assert {"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}} in head["spec"]["volumes"]
    assert f"--memory={2 * 2**30} " in head["spec"]["containers"][0]["args"][0]
    assert "--num-cpus=2 " in head["spec"]["containers"][0]["args"][0]


def test_a_command_of_the_template_runs_before_ray() -> None:
    [head] = expand(bare(command=["echo"], args=["hello"]))
    assert head["spec"]["containers"][0]["args"][0].startswith("echo hello && ulimit")


def test_a_template_without_security_contexts_does_not_pass_restricted() -> None:
    [head] = expand(bare())
    assert set(violations(head)) == {
        "ray.allowPrivilegeEscalation",
        "ray.capabilities",
        "ray.runAsNonRoot",
        "ray.seccompProfile",
    }


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("kind",), "Pod", "kind=Pod"),
        (("spec", "submissionMode"), "SidecarMode", "submissionMode=SidecarMode"),
        (("spec", "rayClusterSpec", "tlsOptions"), {}, "tlsOptions"),
    ],
)
def test_an_unsupported_field_is_refused(path: tuple[str, ...], value: object, message: str) -> None:
    manifest = copy.deepcopy(JOB)
    node = manifest
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        expand(manifest)
