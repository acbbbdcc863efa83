"""The diagnostics' DaemonSet, and the gate's arguments and roles."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from infra.spec.catalog import load_catalog
from infra.spec.cluster_names import READY_TIMEOUT_MINUTES
from infra.spec.manifest import Manifest
from infra.spec.node_group import resolve_node_groups
from infra.spec.node_labels import DIAGNOSE_LABEL, GROUP_LABEL, NO_CAPACITY_TAINT
from infra.spec.release import load_release
from infra.spec.settings import StackSettings
from platform_charts.images.node_gate.__main__ import parser
from platform_charts.objects.image_pull import IMAGE_PULL
from platform_charts.objects.phases import platform_objects
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of
from tests.platform_charts.jobs.restricted import violations
from tests.platform_charts.objects.samples import FACTS, RELEASE, named, varied

MIG = {"gpu_groups.1.sharing": {"mig_profile": "1g.10gb"}, "gpu_groups.1.efa": False}


def gpu_objects(**changes: object) -> tuple[Manifest, ...]:
    return platform_objects(varied(changes), RELEASE, FACTS)["gpu"]


def diagnosing(level: str, **changes: object) -> tuple[Manifest, ...]:
    return gpu_objects(gpu_health={"diagnostics": level}, **changes)


def gate_arguments(objects: tuple[Manifest, ...]) -> list[str]:
    (container,) = named(objects, "Deployment", "node-gate")["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments


def diagnosed(objects: tuple[Manifest, ...]) -> dict[str, bool]:
    (groups,) = [one.removeprefix("--groups=") for one in gate_arguments(objects) if one.startswith("--groups=")]
    return {name: group["is_diagnosed"] for name, group in json.loads(groups).items()}


def test_diagnostics_run_on_labelled_nodes_of_groups_without_mig_with_the_levels_number() -> None:
    for level, number in (("quick", 1), ("medium", 2)):
        objects = diagnosing(level, mirrors={"images": "mirror.example/all"})
        manifest = named(objects, "DaemonSet", "gpu-diagnostics")
        # The provider would wait ten minutes for a sick node, and then fail the update.
        assert manifest["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
        pod = manifest["spec"]["template"]["spec"]
        assert f"dcgmi diag -r {number} " in pod["initContainers"][0]["command"][-1]
        assert pod["initContainers"][0]["image"].startswith("mirror.example/all/nvcr.io/nvidia/cloud-native/dcgm")
        assert pod["nodeSelector"] == {DIAGNOSE_LABEL: "true"}
        assert diagnosed(objects) == {"t4": True, "h100": True}
    assert diagnosed(diagnosing("quick", **MIG)) == {"t4": True, "h100": False}


def test_the_diagnostics_have_no_permissions_on_the_cluster_and_only_what_gpus_need() -> None:
    """NVIDIA's runtime gives GPUs that no one has requested to containers with CAP_SYS_ADMIN only."""
    pod = named(diagnosing("quick"), "DaemonSet", "gpu-diagnostics")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert not any("hostPath" in volume for volume in pod["volumes"])
    for container in (*pod["initContainers"], *pod["containers"]):
        added = ["SYS_ADMIN"] if container["name"] == "diagnose" else None
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert container["securityContext"]["capabilities"].get("add") == added
        assert "privileged" not in container["securityContext"]
        assert "nvidia.com/gpu" not in container["resources"]["limits"]


@pytest.mark.parametrize(("status", "report"), [(0, "Pass"), (226, "GPU 3: Fail\n  Error: ECC")])
def test_the_script_ends_with_the_status_of_the_diagnostics(status: int, report: str, tmp_path: Path) -> None:
    """With programs in place of DCGM's, which need a GPU."""
    programs = {
        "nv-hostengine": "exec sleep 60",
        "dcgmi": f'[ "$1" = discovery ] && exit 0; [ "$*" = "diag -r 1" ] || exit 99; echo "{report}"; exit {status}',
    }
    for name, body in programs.items():
        tmp_path.joinpath(name).write_text(f"#!/bin/bash\n{body}\n")
        tmp_path.joinpath(name).chmod(0o755)
    pod = named(diagnosing("quick"), "DaemonSet", "gpu-diagnostics")["spec"]["template"]["spec"]
    script = pod["initContainers"][0]["command"][-1]
    script = script.replace("/dev/termination-log", str(tmp_path / "message")).replace(
        "/tmp/report", str(tmp_path / "report")
    )
    script = f"trap 'kill %1' EXIT\n{script}"
    path = f"{tmp_path}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", script], env={"PATH": path}, stdout=subprocess.DEVNULL, timeout=30, check=False
    )
    assert ended.returncode == status
    if status:
        assert (tmp_path / "message").read_text() == f"{report}\n"


def test_the_gates_program_accepts_its_arguments() -> None:
    options = parser().parse_args(gate_arguments(gpu_objects()))
    assert options.groups["h100"].parts == ["h100"]
    assert options.groups["t4"].parts == ["t4-us-east-1a", "t4-us-east-1b", "t4-us-east-1c"]
    assert (options.hold_minutes, options.no_capacity_taint) == (50, NO_CAPACITY_TAINT.key)
    assert options.hold_minutes > READY_TIMEOUT_MINUTES


def daemon_sets(settings: StackSettings) -> list[Manifest]:
    objects = platform_objects(settings, load_release(), FACTS)["gpu"]
    return [one for one in objects if one["kind"] == "DaemonSet" and one["metadata"]["name"] == IMAGE_PULL]


def groups_of(manifest: Manifest) -> list[str]:
    affinity = manifest["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == (GROUP_LABEL, "In")
    names: list[str] = expression["values"]
    return names


def test_every_gpu_group_pulls_the_image_that_jobs_use_unless_it_is_left_out() -> None:
    release = load_release()
    for environment in ENVIRONMENTS:
        settings = settings_of(environment)
        (made,) = daemon_sets(settings)
        (container,) = made["spec"]["template"]["spec"]["containers"]
        assert container["image"] == release.images["trainer"].reference(FACTS.registry)
        assert groups_of(made) == [group.name for group in resolve_node_groups(settings, catalog=load_catalog()).gpu]
    (made,) = daemon_sets(varied({"gpu_groups.0.prepull": False}))
    assert groups_of(made) == ["h100"]
    assert daemon_sets(varied({"gpu_groups.0.prepull": False, "gpu_groups.1.prepull": False})) == []


def test_all_nodes_pull_a_new_release_at_once_and_pulumi_does_not_wait_for_it() -> None:
    """The image may not be pushed yet: the provider waits ten minutes for a DaemonSet, and then fails the update."""
    (made,) = daemon_sets(varied({}))
    assert made["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


def test_the_pod_is_restricted_asks_for_no_gpu_and_has_the_lowest_priority() -> None:
    (made,) = daemon_sets(varied({}))
    pod = made["spec"]["template"]["spec"]
    assert "priorityClassName" not in pod
    assert "nvidia.com/gpu" not in pod["containers"][0]["resources"]["limits"]
    assert violations({"spec": pod}) == []
