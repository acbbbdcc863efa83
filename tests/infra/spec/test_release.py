"""The release manifest: the shipped versions fit together, and each broken pair is refused by its rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.protection import EnvironmentKind
from infra.spec.release import RELEASE_FILE, ReleaseManifest, load_release, staleness
from infra.spec.release_rules import RULES, check_release, findings, read_project
from infra.spec.section import read_document, validate
from tests.infra.spec.samples import changed

PROJECT = read_project()
DIGEST = "sha256:" + "0" * 64


SCALER = "charts.cluster-autoscaler.app_version"


def trainers(package: str, version: str) -> dict[str, Any]:
    """The version of a package in the images of the trainer and of sessions."""
    return {f"images.{name}.contains.{package}": version for name in ("trainer", "session")}


BROKEN_PAIRS: list[tuple[str, dict[str, Any]]] = [
    ("our_images_have_the_platforms_version", {"platform": "9.9.9"}),
    ("our_images_have_the_platforms_version", {"images.trainer.tag": "0.0.1"}),
    ("the_lock_matches_the_stack", {"stack.ray": "2.59.0", **trainers("ray", "2.59.0")}),
    ("the_lock_matches_the_stack", {"stack.torch": "2.14.0", **trainers("torch", "2.14.0")}),
    ("the_lock_matches_the_stack", {"stack.mlflow": "3.1.0", "images.mlflow.contains.mlflow": "3.1.0"}),
    ("the_lock_matches_the_stack", {"stack.cuda": "13.0", **trainers("cuda", "13.0")}),
    ("images_match_the_stack", {**trainers("ray", "2.59.0")}),
    ("images_match_the_stack", {"images.mlflow.contains.mlflow": "3.16.0"}),
    (
        "the_project_supports_the_images_python",
        {
            "stack.python": "3.15",
            **trainers("python", "3.15"),
            "images.python-base.tag": "3.15-slim-bookworm",
        },
    ),
    ("the_base_image_has_the_stacks_python", {"images.python-base.tag": "3.12-slim-bookworm"}),
    ("the_driver_supports_cuda", {"node_image.nvidia_driver": "575"}),
    ("the_driver_supports_cuda", {"compatibility.driver_for_cuda": {"12": "525"}}),
    ("kuberay_crds_match_the_operator", {"crds.kuberay": "1.5.0"}),
    ("kuberay_supports_ray", {"compatibility.ray_for_kuberay": ">=2.61"}),
    ("the_minor_is_supported", {"kubernetes.supported": ["1.34"]}),
    ("node_images_match_the_minor", {"node_image.releases.AL2023_x86_64_NVIDIA": "1.34.1-20260101"}),
    ("addons_support_the_minor", {"addons.kube-proxy.version": "v1.34.0-eksbuild.2"}),
    ("addons_support_the_minor", {"addons.eks-node-monitoring-agent.version": "v1.6.6-eksbuild.1"}),
    ("addons_support_the_minor", {"addons.aws-ebs-csi-driver.kubernetes": ">=1.36"}),
    ("charts_support_the_minor", {"charts.kueue.kubernetes": ">=1.36"}),
    ("charts_support_the_minor", {SCALER: "1.34.0", "images.cluster-autoscaler.chart": None}),
    ("images_match_their_charts", {"images.kuberay-operator.tag": "v1.5.0"}),
    ("images_match_their_charts", {"images.kueue.chart": "queue"}),
]


def release_with(changes: dict[str, Any]) -> ReleaseManifest:
    return validate(ReleaseManifest, changed(read_document(RELEASE_FILE).value, changes), file="release.yaml")


def resolved_release() -> ReleaseManifest:
    """The shipped release with made-up values for every unresolved entry."""
    release = load_release()
    document = read_document(RELEASE_FILE).value
    for name in release.unresolved():
        group, key, field = name.split(".")
        node = document[group][key]
        match group, field:
            case "node_image", _:
                node[field] = "1.35.2-20260101"
            case "addons", _:
                node[field] = "v1.35.0-eksbuild.1"
            case "charts", "version":
                node[field] = "1.0.0"
            case ("charts", _) | ("downloads", _):
                node[field] = "0" * 64
            case _:
                node[field] = DIGEST
    return validate(ReleaseManifest, document, file="release.yaml")


def test_the_shipped_release_fits_together_and_a_broken_pair_is_refused_by_exactly_its_rule() -> None:
    assert findings(load_release(), project=PROJECT) == ()
    assert {rule for rule, _ in BROKEN_PAIRS} == {rule.__name__ for rule in RULES}
    for rule, changes in BROKEN_PAIRS:
        broken = findings(release_with(changes), project=PROJECT)
        assert {finding.rule for finding in broken} == {rule}, rule


def test_a_broken_rule_names_both_versions() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"platform": "9.9.9"}, "images.trainer.tag is 0.1.0, platform is 9.9.9"),
        ({"images.trainer.contains.jax": "1"}, "images.trainer contains jax 1, stack.jax is None"),
        ({"compatibility.driver_for_cuda": {"12": "525"}}, "compatibility.driver_for_cuda has no entry for CUDA 13.2"),
        ({SCALER: None, "images.cluster-autoscaler.chart": None}, f"{SCALER} is None, its minor must be 1.35"),
    ]
    for changes, message in cases:
        broken = findings(release_with(changes), project=PROJECT)
        assert message in [finding.message for finding in broken]
        assert str(broken[0]) == f"{broken[0].rule}: {broken[0].message}"
    without = replace(PROJECT, locked={name: version for name, version in PROJECT.locked.items() if name != "ray"})
    (finding,) = findings(load_release(), project=without)
    assert finding.message == "stack.ray is 2.60.0, requirements.lock has None"


def test_a_driver_and_an_add_on_of_the_minimum_version_or_whose_range_includes_the_minor_pass() -> None:
    lowest = load_release().addons["eks-node-monitoring-agent"].minimum
    changes = {
        "node_image.nvidia_driver": load_release().compatibility.driver_for_cuda["13"],
        "addons.eks-node-monitoring-agent.version": f"v{lowest}-eksbuild.1",
        "addons.aws-ebs-csi-driver.kubernetes": ">=1.30",
    }
    assert findings(release_with(changes), project=PROJECT) == ()


def test_the_project_is_read_from_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nrequires-python = ">=3.11"\n', encoding="utf-8")
    with pytest.raises(SettingsError, match=r"requirements\.lock: no such file"):
        read_project(tmp_path)
    lock = "ray==2.60.0;python_version>'3' \\\n    --hash=sha256:0\nnumpy==2.4 \\\n# torch==1\n"
    (tmp_path / "requirements.lock").write_text(lock, encoding="utf-8")
    project = read_project(tmp_path)
    assert project.requires_python == ">=3.11"
    assert dict(project.locked) == {"ray": "2.60.0", "numpy": "2.4"}


def test_every_environment_refuses_incompatible_versions() -> None:
    release = release_with({"crds.kuberay": "1.5.0"})
    for kind in EnvironmentKind:
        with pytest.raises(RefusedError, match=r"crds\.kuberay is 1\.5\.0, the operator's chart is 1\.6\.2"):
            check_release(release, kind=kind, project=PROJECT)


def test_prod_refuses_unresolved_entries_by_name_and_a_test_cluster_accepts_them() -> None:
    release = load_release()
    check_release(release, kind=EnvironmentKind.TEST, project=PROJECT)
    with pytest.raises(RefusedError) as caught:
        check_release(release, kind=EnvironmentKind.PROD, project=PROJECT)
    assert all(f"\n  {name}" in str(caught.value) for name in release.unresolved())
    assert f"has {len(release.unresolved())} unresolved entries" in str(caught.value)
    assert "make release-lock" in caught.value.remedy
    assert resolved_release().unresolved() == ()
    check_release(resolved_release(), kind=EnvironmentKind.PROD, project=PROJECT)


def test_an_invalid_digest_hash_or_version_is_refused_by_name() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"images.trainer.digest": "latest"}, "images.trainer.digest = latest"),
        ({"charts.kueue.sha256": "abc"}, "charts.kueue.sha256 = abc"),
        ({"addons.coredns.version": "latest"}, "addons.coredns.version = latest"),
        ({"charts.kueue.kubernetes": "newish"}, "charts.kueue.kubernetes = newish: invalid version range 'newish'"),
        ({"charts.kueue.sha": None}, "charts.kueue.sha: no such setting"),
    ]
    for changes, name in cases:
        with pytest.raises(SettingsError) as caught:
            release_with(changes)
        assert name in str(caught.value), changes


def test_images_are_pulled_by_digest_and_ours_from_the_stacks_registry() -> None:
    release = resolved_release()
    host = "111122223333.dkr.ecr.us-east-1.amazonaws.com"
    assert release.images["trainer"].reference(host) == f"{host}/trainer@{DIGEST}"
    assert release.images["kueue"].reference(host) == f"registry.k8s.io/kueue/kueue@{DIGEST}"
    with pytest.raises(ValueError, match="mlflow is an image of ours, so its reference needs the stack's registry"):
        release.images["mlflow"].reference()

    # Without a digest an image is pulled by its tag; one of ours names none that could exist.
    assert load_release().images["kueue"].reference() == "registry.k8s.io/kueue/kueue:v0.19.2"
    assert load_release().images["mlflow"].reference("host/rtp-dev") == "host/rtp-dev/mlflow:not-pushed"


def test_the_tag_of_an_image_of_ours_begins_with_the_platforms_version() -> None:
    for tag, is_accepted in (
        ("0.1.0", True),
        ("0.1.0-cuda-0123456789ab", True),
        ("0.1.01", False),
        ("0.1.0.1-x", False),
        ("cuda-0.1.0", False),
    ):
        broken = findings(release_with({"images.trainer.tag": tag}), project=PROJECT)
        assert (broken == ()) is is_accepted, tag


def test_the_staleness_report_starts_with_entries_never_looked_up_and_then_the_oldest() -> None:
    changes = {
        "kubernetes.as_of": "2026-01-01",
        "node_image.as_of": "2026-02-01",
        "charts.kueue.as_of": None,
        "images.kueue.as_of": "2026-05-31",
    }
    report = staleness(release_with(changes), today=date(2026, 6, 1), limit_days=90)
    never = [stale.entry for stale in report if stale.days is None]
    assert "charts.kueue" in never
    assert [tuple(stale) for stale in report[len(never) :]] == [("kubernetes", 151), ("node_image", 120)]
    report = staleness(load_release(), today=date(2040, 1, 1))
    assert not {"images.trainer", "images.mlflow"} & {stale.entry for stale in report}, "our own images never go stale"
