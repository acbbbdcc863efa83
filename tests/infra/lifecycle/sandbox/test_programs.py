"""Where the programs of the control plane and the operators are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.version import Version

from infra.lifecycle.sandbox.modules import (
    ALERTMANAGER,
    KUBELET,
    KUBERAY,
    KUBERNETES,
    KUEUE,
    KWOK,
    MODULES,
    OPERATORS,
    PREVIOUS_KUBERAY,
    PROMETHEUS,
    PROMETHEUS_OPERATOR,
    Module,
    newest_go,
)
from infra.lifecycle.sandbox.programs import NEEDED, find_operator, find_programs
from infra.spec.errors import RefusedError
from infra.spec.release import load_release


def put(folder: Path, *, version: str = KUBERNETES.version, without: frozenset[str] = frozenset()) -> Path:
    """A folder with fake programs that print their version."""
    folder.mkdir(parents=True)
    for program in set(NEEDED) - without:
        path = folder / program
        path.write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
        path.chmod(0o755)
    return folder


def executable(path: Path) -> Path:
    """A fake program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_pinned_kubernetes_has_the_releases_minor_version() -> None:
    assert KUBERNETES.version.rpartition(".")[0] == load_release().kubernetes.version


def test_the_kubelet_has_the_version_of_the_control_plane() -> None:
    assert KUBELET.version == KUBERNETES.version


def test_the_go_version_is_a_release() -> None:
    assert re.fullmatch(r"1\.\d+(\.\d+)?", newest_go())


def test_the_pinned_kueue_is_the_releases() -> None:
    assert load_release().charts["kueue"].version == KUEUE.version


def test_the_pinned_prometheus_operator_is_the_releases() -> None:
    assert load_release().images["prometheus-operator"].tag == f"v{PROMETHEUS_OPERATOR.version}"


def test_the_pinned_alertmanager_is_the_releases() -> None:
    assert load_release().images["alertmanager"].tag == f"v{ALERTMANAGER.version}"


def test_the_pinned_prometheus_is_the_releases() -> None:
    assert load_release().images["prometheus"].tag == f"v{PROMETHEUS.release}-distroless"


def test_the_pinned_kuberay_is_the_releases() -> None:
    assert load_release().charts["kuberay-operator"].version == KUBERAY.version


def test_upgrades_are_tested_from_the_minor_before() -> None:
    before, now = (Version(module.version) for module in (PREVIOUS_KUBERAY, KUBERAY))
    assert (before.major, before.minor + 1) == (now.major, now.minor)


def test_kubebuilder_assets_precede_path_and_path_precedes_the_cache(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "cache"), "PATH": str(tmp_path / "path")}
    cached = {put(module.cache_folder(environment)) for module in (KUBERNETES, KWOK)}
    assert {path.parent for path in find_programs(environment).values()} == cached
    on_path = put(tmp_path / "path")
    assert {path.parent for path in find_programs(environment).values()} == {on_path}
    named = put(tmp_path / "assets")
    assert {path.parent for path in find_programs({**environment, "KUBEBUILDER_ASSETS": str(named)}).values()} == {
        named
    }


def test_programs_missing_in_kubebuilder_assets_come_from_path(tmp_path: Path) -> None:
    named = put(tmp_path / "assets", without=frozenset({"kwok"}))
    elsewhere = put(tmp_path / "path")
    found = find_programs({"KUBEBUILDER_ASSETS": str(named), "PATH": str(elsewhere), "RTP_ENGINES": str(tmp_path)})
    assert found["kwok"].parent == elsewhere
    assert found["kube-apiserver"].parent == named


def test_another_minor_version_is_rejected_by_name(tmp_path: Path) -> None:
    named = put(tmp_path / "assets", version="1.29.3")
    with pytest.raises(RefusedError, match=r"kube-apiserver is Kubernetes v1\.29\.3, not 1\.\d+"):
        find_programs({"KUBEBUILDER_ASSETS": str(named), "PATH": "", "RTP_ENGINES": str(tmp_path)})


def test_another_patch_version_is_accepted(tmp_path: Path) -> None:
    minor = KUBERNETES.version.rpartition(".")[0]
    named = put(tmp_path / "assets", version=f"{minor}.0")
    assert (
        find_programs({"KUBEBUILDER_ASSETS": str(named), "RTP_ENGINES": str(tmp_path)})["kube-scheduler"].parent
        == named
    )


def test_the_error_for_missing_programs_names_make_engines(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"(?s)etcd, kube-apiserver, .* make engines"):
        find_programs({"PATH": "", "RTP_ENGINES": str(tmp_path)})


@pytest.mark.parametrize("module", OPERATORS)
def test_an_operators_variable_precedes_the_cache(module: Module, tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "cache"), "PATH": ""}
    assert find_operator(module, environment) is None
    (program,) = module.packages
    built = executable(module.cache_folder(environment) / program)
    assert find_operator(module, environment) == built
    named = executable(tmp_path / "manager")
    assert find_operator(module, {**environment, str(module.variable): str(named)}) == named


@pytest.mark.parametrize("module", OPERATORS)
def test_a_variable_that_names_no_executable_is_refused(module: Module, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=rf"{module.variable}=\S+/none: not executable\n  remedy: .* make engines"):
        find_operator(module, {str(module.variable): str(tmp_path / "none")})


def test_each_module_has_its_own_folder_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key = KUBERNETES.cache_folder({}).name
    assert key.startswith(f"kubernetes-{KUBERNETES.version}-")
    assert KUBERNETES.cache_folder({"RTP_ENGINES": "/opt/engines"}) == Path("/opt/engines") / key
    assert KUBERNETES.cache_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/ray-train-platform/engines") / key
    assert KUBERNETES.cache_folder({}) == tmp_path / ".cache/ray-train-platform/engines" / key
    assert len({module.cache_folder({}) for module in MODULES}) == len(MODULES)
