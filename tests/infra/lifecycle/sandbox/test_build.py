"""Filling the engines cache, with a fake Go that records its arguments."""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.build import build
from infra.lifecycle.sandbox.modules import (
    ALERTMANAGER,
    COREDNS,
    KUBERNETES,
    KUEUE,
    MODULES,
    MONITORING_MODULES,
    NODE_MODULES,
    PREVIOUS_KUBERAY,
    PREVIOUS_MODULES,
    PROMETHEUS,
    Module,
)
from infra.lifecycle.sandbox.programs import find_programs
from infra.spec.errors import PlatformError, RefusedError

_BUILT = (*MODULES, *PREVIOUS_MODULES, *MONITORING_MODULES)
_PACKAGES = [package for module in _BUILT for package in module.packages.values()]
_WITH_CRDS = [module for module in _BUILT if module.crds]

_GO = """#!/bin/sh
if [ "$1" = mod ]; then echo '{{"Dir": "{sources}"}}'; exit; fi
echo "$PWD $@" >>{notes}
while [ "$1" != -o ]; do
  if [ "$1" = -modfile ]; then tail -n 1 "$2" >>{notes}.replaced; ls "$(dirname "$2")"/project/ui/app/dist >>{notes}.replaced; fi
  shift
done
{does}
"""


class Compiler:
    """A fake `go` on PATH."""

    def __init__(self, folder: Path, *, does: str = 'echo program >"$2"; chmod +x "$2"') -> None:
        folder.mkdir()
        self._notes = folder / "notes"
        self._notes.touch()
        sources = folder / "sources"
        for pattern in (pattern for module in _WITH_CRDS for pattern in module.crds):
            crd = sources / pattern.replace("*", "ants")
            crd.parent.mkdir(parents=True, exist_ok=True)
            crd.touch(mode=0o444)
        for source in (source for module in _BUILT for source in module.stand_ins.values()):
            (sources / source).parent.mkdir(parents=True, exist_ok=True)
            (sources / source).touch(mode=0o444)
        go = folder / "go"
        go.write_text(_GO.format(notes=self._notes, does=does, sources=sources))
        go.chmod(0o755)
        self.environment = {"PATH": f"{folder}:{os.environ['PATH']}", "RTP_ENGINES": str(folder.parent / "cache")}

    @property
    def replaced(self) -> list[str]:
        """The last line of each `go.mod` that replaces a module's own, and the files that its project has in place of its web UI."""
        return self._notes.with_suffix(".replaced").read_text().splitlines()

    @property
    def calls(self) -> list[str]:
        """Working directory and arguments of each build."""
        return self._notes.read_text().splitlines()


def silent(_line: str) -> None:
    """Print no progress."""


def test_every_program_is_built_from_its_module_into_the_modules_folder(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    expected = [(module, program) for module in _BUILT for program in module.packages]
    for call, (module, program) in zip(compiler.calls, expected, strict=True):
        assert call.split()[0].endswith(f"engines/{module.name}")
        assert call.endswith(f" {module.packages[program]}")
        assert (module.cache_folder(compiler.environment) / program).is_file()


def test_crds_are_copied_next_to_the_programs(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    files = {module.name: {path.name for path in _crds(compiler, module)} for module in _WITH_CRDS}
    rules = {"antsmonitors.yaml", "antsprobes.yaml", "antsrules.yaml"}
    ants = {name: {"ants.yaml"} for name in ("kuberay", "kuberay-previous", "kueue")}
    assert files == {**ants, "prometheus-operator": rules}


def test_crds_are_there_before_the_first_program_is_built(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin", does="exit 1")
    with pytest.raises(PlatformError, match="go build failed"):
        build(compiler.environment, say=silent)
    assert all(_crds(compiler, module) for module in MODULES if module.crds)


def test_crds_that_are_missing_are_copied_without_a_build(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    shutil.rmtree(KUEUE.crd_folder(compiler.environment))
    build(compiler.environment, say=silent)
    assert _crds(compiler, KUEUE)
    assert len(compiler.calls) == len(_PACKAGES)


def _crds(compiler: Compiler, module: Module) -> list[Path]:
    return list(module.crd_folder(compiler.environment).iterdir())


def test_kubernetes_is_stamped_with_its_version(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    calls = [call for call in compiler.calls if " k8s.io/kubernetes/" in call]
    assert len(calls) == 3
    assert all(f"version.gitVersion=v{KUBERNETES.version} " in call for call in calls)


def test_servers_of_monitoring_report_the_version_of_their_release(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    for module in MONITORING_MODULES:
        calls = [call for call in compiler.calls if f" {module.project}/cmd/" in call]
        assert len(calls) == 2
        assert all(f"common/version.Version={module.release} " in call for call in calls)


def test_prometheus_is_built_with_the_discovery_of_pods_alone(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    tagged = [call.split()[-1] for call in compiler.calls if " -tags remove_all_sd,enable_kubernetes_sd " in call]
    assert tagged == list(PROMETHEUS.packages.values())


def test_a_project_that_lacks_files_is_built_from_a_copy_that_has_them(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    (replace, file), again = compiler.replaced[:2], compiler.replaced[2:]
    assert re.fullmatch(rf"replace {ALERTMANAGER.project} => /\S+/project", replace)
    assert file == "index.html"
    assert len(again) == 2 * (len(ALERTMANAGER.packages) - 1)


def test_programs_of_real_nodes_are_built_last_and_only_on_request(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    assert len(compiler.calls) == len(_PACKAGES)
    build(compiler.environment, say=silent, has_real_nodes=True)
    added = [package for module in NODE_MODULES for package in module.packages.values()]
    assert [call.split()[-1] for call in compiler.calls] == [*_PACKAGES, *added]
    kubelet = next(call for call in compiler.calls if call.endswith("/cmd/kubelet"))
    assert f"version.gitVersion=v{KUBERNETES.version} " in kubelet


def test_a_changed_source_of_ours_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = COREDNS.cache_folder({})
    copy = tmp_path / "node"
    shutil.copytree(COREDNS.folder, copy)
    monkeypatch.setattr(Module, "folder", copy)
    assert COREDNS.cache_folder({}) == before
    with (copy / "pause" / "main.go").open("a") as source:
        source.write("// changed\n")
    assert COREDNS.cache_folder({}) != before


def test_built_programs_are_found(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    root = build(compiler.environment, say=silent)
    environment = {**compiler.environment, "PATH": ""}
    assert all(path.is_relative_to(root) for path in find_programs(environment).values())


def test_a_second_build_does_nothing_and_needs_no_go(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    build({**compiler.environment, "PATH": ""}, say=silent)
    assert len(compiler.calls) == len(_PACKAGES)


def test_only_a_changed_module_is_built_again(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    shutil.rmtree(KUEUE.cache_folder(compiler.environment))
    build(compiler.environment, say=silent)
    assert [call.split()[-1] for call in compiler.calls] == [*_PACKAGES, *KUEUE.packages.values()]


def test_of_two_concurrent_builds_only_one_builds(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin", does='sleep 0.05; echo program >"$2"')
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: build(compiler.environment, say=silent), range(2)))
    assert len(compiler.calls) == len(_PACKAGES)


def test_a_failed_build_reports_the_output_of_go_and_leaves_no_program(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin", does="echo 'no such host: proxy' >&2; exit 1")
    with pytest.raises(PlatformError, match="no such host: proxy"):
        build(compiler.environment, say=silent)
    with pytest.raises(RefusedError):
        find_programs({**compiler.environment, "PATH": ""})


def test_an_operator_that_fails_to_build_leaves_a_control_plane(tmp_path: Path) -> None:
    does = 'case "$PWD" in */kuberay) exit 1; esac; echo program >"$2"; chmod +x "$2"'
    compiler = Compiler(tmp_path / "bin", does=does)
    with pytest.raises(PlatformError, match="KubeRay operator"):
        build(compiler.environment, say=silent)
    assert find_programs({**compiler.environment, "PATH": ""})


def test_an_earlier_version_that_cannot_be_had_leaves_everything_else(tmp_path: Path) -> None:
    compiler = Compiler(
        tmp_path / "bin", does='case "$PWD" in */kuberay-previous) exit 1; esac; touch "$2"; chmod +x "$2"'
    )
    with pytest.raises(PlatformError, match=PREVIOUS_KUBERAY.title):
        build(compiler.environment, say=silent)
    assert all(
        (module.cache_folder(compiler.environment) / name).is_file() for module in MODULES for name in module.packages
    )


def test_a_build_resumes_after_an_interrupted_one(tmp_path: Path) -> None:
    broken = Compiler(tmp_path / "broken", does='echo half >"$2"; exit 1')
    with pytest.raises(PlatformError):
        build(broken.environment, say=silent)
    compiler = Compiler(tmp_path / "bin")
    build(compiler.environment, say=silent)
    assert len(compiler.calls) == len(_PACKAGES)


def test_without_go_the_error_names_the_version_to_install(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"no `go` on PATH\n  remedy: install Go 1\.\d+"):
        build({"PATH": "", "RTP_ENGINES": str(tmp_path)}, say=silent)


def test_progress_names_each_program_with_its_version(tmp_path: Path) -> None:
    lines: list[str] = []
    build(Compiler(tmp_path / "bin").environment, say=lines.append)
    assert f"Kubernetes {KUBERNETES.version}: building etcd" in lines
    assert f"Kueue {KUEUE.version}: copied the CRDs" in lines
    assert len(lines) == len(_WITH_CRDS) + 2 * len(_PACKAGES)
