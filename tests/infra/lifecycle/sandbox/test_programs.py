"""Which programs of a control plane are taken, and from where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.modules import KUBERAY, KUBERNETES, KUEUE, KWOK, MODULES, OPERATORS, Module, newest_go
from infra.lifecycle.sandbox.programs import NEEDED, find_operator, find_programs
from infra.spec.errors import RefusedError
from infra.spec.release import load_release


def put(folder: Path, *, version: str = KUBERNETES.version, without: frozenset[str] = frozenset()) -> Path:
    """A folder with programs that only say their version."""
    folder.mkdir(parents=True)
    for program in set(NEEDED) - without:
        path = folder / program
        path.write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
        path.chmod(0o755)
    return folder


def executable(path: Path) -> Path:
    """A program that does nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_pinned_kubernetes_is_of_the_releases_minor() -> None:
    assert KUBERNETES.version.rpartition(".")[0] == load_release().kubernetes.version


def test_the_version_of_go_is_one_that_a_person_can_install() -> None:
    assert re.fullmatch(r"1\.\d+(\.\d+)?", newest_go())


def test_the_pinned_kueue_is_the_releases() -> None:
    assert load_release().charts["kueue"].version == KUEUE.version


def test_the_pinned_kuberay_is_the_releases_or_the_newest_before_it_that_is_published_as_a_module() -> None:
    release = load_release().charts["kuberay-operator"].version
    assert KUBERAY.version in {release, "1.6.2"}


def test_the_named_folder_comes_before_path_and_path_before_the_cache(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "cache"), "PATH": str(tmp_path / "path")}
    cached = {put(module.cache_folder(environment)) for module in (KUBERNETES, KWOK)}
    assert {path.parent for path in find_programs(environment).values()} == cached
    on_path = put(tmp_path / "path")
    assert {path.parent for path in find_programs(environment).values()} == {on_path}
    named = put(tmp_path / "assets")
    assert {path.parent for path in find_programs({**environment, "KUBEBUILDER_ASSETS": str(named)}).values()} == {
        named
    }


def test_what_the_named_folder_lacks_comes_from_elsewhere(tmp_path: Path) -> None:
    named = put(tmp_path / "assets", without=frozenset({"kwok"}))
    elsewhere = put(tmp_path / "path")
    found = find_programs({"KUBEBUILDER_ASSETS": str(named), "PATH": str(elsewhere), "RTP_ENGINES": str(tmp_path)})
    assert found["kwok"].parent == elsewhere
    assert found["kube-apiserver"].parent == named


def test_another_minor_version_is_passed_over_and_named(tmp_path: Path) -> None:
    named = put(tmp_path / "assets", version="1.29.3")
    with pytest.raises(RefusedError, match=r"kube-apiserver is Kubernetes v1\.29\.3, not 1\.\d+"):
        find_programs({"KUBEBUILDER_ASSETS": str(named), "PATH": "", "RTP_ENGINES": str(tmp_path)})


def test_another_patch_of_the_same_minor_is_taken(tmp_path: Path) -> None:
    minor = KUBERNETES.version.rpartition(".")[0]
    named = put(tmp_path / "assets", version=f"{minor}.0")
    assert (
        find_programs({"KUBEBUILDER_ASSETS": str(named), "RTP_ENGINES": str(tmp_path)})["kube-scheduler"].parent
        == named
    )


def test_the_message_about_missing_programs_says_what_builds_them(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"(?s)etcd, kube-apiserver, .* make engines"):
        find_programs({"PATH": "", "RTP_ENGINES": str(tmp_path)})


@pytest.mark.parametrize("module", OPERATORS)
def test_an_operator_is_the_one_that_its_variable_names_else_the_built_one(module: Module, tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "cache"), "PATH": ""}
    assert find_operator(module, environment) is None
    (program,) = module.packages
    built = executable(module.cache_folder(environment) / program)
    assert find_operator(module, environment) == built
    named = executable(tmp_path / "manager")
    assert find_operator(module, {**environment, str(module.variable): str(named)}) == named


@pytest.mark.parametrize("module", OPERATORS)
def test_a_variable_that_names_no_program_is_refused(module: Module, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=rf"{module.variable}=\S+/none is no program\n  remedy: .* make engines"):
        find_operator(module, {str(module.variable): str(tmp_path / "none")})


def test_each_module_has_a_folder_of_its_own_under_the_named_one_else_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key = KUBERNETES.cache_folder({}).name
    assert key.startswith(f"kubernetes-{KUBERNETES.version}-")
    assert KUBERNETES.cache_folder({"RTP_ENGINES": "/opt/engines"}) == Path("/opt/engines") / key
    assert KUBERNETES.cache_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/ray-train-platform/engines") / key
    assert KUBERNETES.cache_folder({}) == tmp_path / ".cache/ray-train-platform/engines" / key
    assert len({module.cache_folder({}) for module in MODULES}) == len(MODULES)
