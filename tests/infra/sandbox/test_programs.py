"""Which programs of a control plane are taken, and from where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.errors import RefusedError
from infra.lifecycle.sandbox.programs import SOURCES, cache_folder, find, go_version, kubernetes_version
from infra.release import load_release


def put(folder: Path, *, version: str = kubernetes_version(), without: frozenset[str] = frozenset()) -> Path:
    """A folder with programs that only say their version."""
    folder.mkdir(parents=True)
    for program in set(SOURCES) - without:
        path = folder / program
        path.write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
        path.chmod(0o755)
    return folder


def test_the_pinned_kubernetes_is_of_the_releases_minor() -> None:
    assert kubernetes_version().rpartition(".")[0] == load_release().kubernetes.version


def test_the_version_of_go_is_one_that_a_person_can_install() -> None:
    assert re.fullmatch(r"1\.\d+(\.\d+)?", go_version())


def test_the_named_folder_comes_before_path_and_path_before_the_cache(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "cache"), "PATH": str(tmp_path / "path")}
    cached = put(cache_folder(environment))
    assert {path.parent for path in find(environment).values()} == {cached}
    on_path = put(tmp_path / "path")
    assert {path.parent for path in find(environment).values()} == {on_path}
    named = put(tmp_path / "assets")
    assert {path.parent for path in find({**environment, "KUBEBUILDER_ASSETS": str(named)}).values()} == {named}


def test_what_the_named_folder_lacks_comes_from_elsewhere(tmp_path: Path) -> None:
    named = put(tmp_path / "assets", without=frozenset({"kwok"}))
    elsewhere = put(tmp_path / "path")
    found = find({"KUBEBUILDER_ASSETS": str(named), "PATH": str(elsewhere), "RTP_ENGINES": str(tmp_path)})
    assert found["kwok"].parent == elsewhere
    assert found["kube-apiserver"].parent == named


def test_another_minor_version_is_passed_over_and_named(tmp_path: Path) -> None:
    named = put(tmp_path / "assets", version="1.29.3")
    with pytest.raises(RefusedError, match=r"kube-apiserver is Kubernetes v1\.29\.3, not 1\.\d+"):
        find({"KUBEBUILDER_ASSETS": str(named), "PATH": "", "RTP_ENGINES": str(tmp_path)})


def test_another_patch_of_the_same_minor_is_taken(tmp_path: Path) -> None:
    minor = kubernetes_version().rpartition(".")[0]
    named = put(tmp_path / "assets", version=f"{minor}.0")
    assert find({"KUBEBUILDER_ASSETS": str(named), "RTP_ENGINES": str(tmp_path)})["kube-scheduler"].parent == named


def test_the_message_about_missing_programs_says_what_builds_them(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"(?s)etcd, kube-apiserver, .* make engines"):
        find({"PATH": "", "RTP_ENGINES": str(tmp_path)})


def test_the_cache_is_under_the_named_folder_else_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key = cache_folder({}).name
    assert key.startswith(f"{kubernetes_version()}-")
    assert cache_folder({"RTP_ENGINES": "/opt/engines"}) == Path("/opt/engines") / key
    assert cache_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/ray-train-platform/engines") / key
    assert cache_folder({}) == tmp_path / ".cache/ray-train-platform/engines" / key
