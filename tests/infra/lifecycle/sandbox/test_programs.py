"""Where the programs of the control plane and the operators are found."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    newest_go,
)
from infra.lifecycle.sandbox.programs import NEEDED, find_operator, find_programs
from infra.spec.errors import RefusedError
from infra.spec.release import load_release


def put(folder: Path, *, version: str = KUBERNETES.version, without: frozenset[str] = frozenset()) -> Path:
    folder.mkdir(parents=True)
    for program in set(NEEDED) - without:
        path = folder / program
        path.write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
        path.chmod(0o755)
    return folder


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_the_pinned_programs_have_the_versions_of_the_release() -> None:
    release = load_release()
    assert KUBERNETES.version.rpartition(".")[0] == release.kubernetes.version
    assert KUBELET.version == KUBERNETES.version
    assert release.charts["kueue"].version == KUEUE.version
    assert release.charts["kuberay-operator"].version == KUBERAY.version
    assert release.images["prometheus-operator"].tag == f"v{PROMETHEUS_OPERATOR.version}"
    assert release.images["alertmanager"].tag == f"v{ALERTMANAGER.version}"
    assert release.images["prometheus"].tag == f"v{PROMETHEUS.release}-distroless"
    before, now = (Version(module.version) for module in (PREVIOUS_KUBERAY, KUBERAY))
    assert (before.major, before.minor + 1) == (now.major, now.minor), "upgrades are tested from the minor before"
    assert re.fullmatch(r"1\.\d+(\.\d+)?", newest_go())


def folder_of(environment: Mapping[str, str], program: str = "kube-apiserver") -> Path:
    return find_programs(environment)[program].parent


def test_kubebuilder_assets_precede_path_and_path_precedes_the_cache(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "cache"), "PATH": str(tmp_path / "path")}
    with pytest.raises(RefusedError, match=r"(?s)etcd, kube-apiserver, .* make engines"):
        find_programs(environment)
    cached = {put(module.cache_folder(environment)) for module in (KUBERNETES, KWOK)}
    assert {path.parent for path in find_programs(environment).values()} == cached
    on_path = put(tmp_path / "path")
    assert {path.parent for path in find_programs(environment).values()} == {on_path}
    named = {**environment, "KUBEBUILDER_ASSETS": str(put(tmp_path / "assets", without=frozenset({"kwok"})))}
    assert (folder_of(named), folder_of(named, "kwok")) == (tmp_path / "assets", on_path)


def test_another_minor_version_is_rejected_by_name_and_another_patch_accepted(tmp_path: Path) -> None:
    minor = KUBERNETES.version.rpartition(".")[0]
    environment = {"PATH": "", "RTP_ENGINES": str(tmp_path)}
    patch, other = put(tmp_path / "patch", version=f"{minor}.0"), put(tmp_path / "other", version="1.29.3")
    assert folder_of({**environment, "KUBEBUILDER_ASSETS": str(patch)}) == patch
    with pytest.raises(RefusedError, match=r"kube-apiserver is Kubernetes v1\.29\.3, not 1\.\d+"):
        find_programs({**environment, "KUBEBUILDER_ASSETS": str(other)})


def test_an_operators_variable_precedes_the_cache(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "cache"), "PATH": ""}
    named = executable(tmp_path / "manager")
    for module in OPERATORS:
        assert find_operator(module, environment) is None
        (program,) = module.packages
        built = executable(module.cache_folder(environment) / program)
        assert find_operator(module, environment) == built
        assert find_operator(module, {**environment, str(module.variable): str(named)}) == named
        with pytest.raises(RefusedError, match=rf"{module.variable}=\S+/none: not executable\n .* make engines"):
            find_operator(module, {str(module.variable): str(tmp_path / "none")})


def test_each_module_has_its_own_folder_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key = KUBERNETES.cache_folder({}).name
    assert key.startswith(f"kubernetes-{KUBERNETES.version}-")
    assert KUBERNETES.cache_folder({"RTP_ENGINES": "/opt/engines"}) == Path("/opt/engines") / key
    assert KUBERNETES.cache_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/ray-train-platform/engines") / key
    assert KUBERNETES.cache_folder({}) == tmp_path / ".cache/ray-train-platform/engines" / key
    assert len({module.cache_folder({}) for module in MODULES}) == len(MODULES)
