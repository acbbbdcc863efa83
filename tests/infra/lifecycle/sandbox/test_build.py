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
        return self._notes.read_text().splitlines()


def silent(_line: str) -> None:
    """Print no progress."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Compiler, list[str]]:
    """A compiler after a build, and the progress that was printed."""
    lines: list[str] = []
    compiler = Compiler(tmp_path_factory.mktemp("built") / "bin")
    build(compiler.environment, say=lines.append)
    return compiler, lines


def _crds(compiler: Compiler, module: Module) -> set[str]:
    return {path.name for path in module.crd_folder(compiler.environment).iterdir()}


def test_every_program_is_built_from_its_module_into_the_modules_folder(built: tuple[Compiler, list[str]]) -> None:
    compiler, said = built
    expected = [(module, program) for module in _BUILT for program in module.packages]
    for call, (module, program) in zip(compiler.calls, expected, strict=True):
        assert call.split()[0].endswith(f"engines/{module.name}")
        assert call.endswith(f" {module.packages[program]}")
        assert (module.cache_folder(compiler.environment) / program).is_file()
    found = find_programs({**compiler.environment, "PATH": ""}).values()
    assert all(path.is_relative_to(compiler.environment["RTP_ENGINES"]) for path in found)
    assert f"Kubernetes {KUBERNETES.version}: building etcd" in said
    assert f"Kueue {KUEUE.version}: copied the CRDs" in said
    assert len(said) == len(_WITH_CRDS) + 2 * len(_PACKAGES)


def test_crds_are_copied_next_to_the_programs(built: tuple[Compiler, list[str]]) -> None:
    rules = {"antsmonitors.yaml", "antsprobes.yaml", "antsrules.yaml"}
    ants = {name: {"ants.yaml"} for name in ("kuberay", "kuberay-previous", "kueue")}
    assert {module.name: _crds(built[0], module) for module in _WITH_CRDS} == {**ants, "prometheus-operator": rules}


def test_programs_are_built_with_their_version_and_tags(built: tuple[Compiler, list[str]]) -> None:
    calls = built[0].calls
    kubernetes = [call for call in calls if " k8s.io/kubernetes/" in call]
    assert len(kubernetes) == 3
    assert all(f"version.gitVersion=v{KUBERNETES.version} " in call for call in kubernetes)
    for module in MONITORING_MODULES:
        servers = [call for call in calls if f" {module.project}/cmd/" in call]
        assert len(servers) == 2
        assert all(f"common/version.Version={module.release} " in call for call in servers)
    tagged = [call.split()[-1] for call in calls if " -tags remove_all_sd,enable_kubernetes_sd " in call]
    assert tagged == list(PROMETHEUS.packages.values()), "only the discovery of pods"


def test_a_project_that_lacks_files_is_built_from_a_copy_that_has_them(built: tuple[Compiler, list[str]]) -> None:
    (replace, file), again = built[0].replaced[:2], built[0].replaced[2:]
    assert re.fullmatch(rf"replace {ALERTMANAGER.project} => /\S+/project", replace)
    assert file == "index.html"
    assert len(again) == 2 * (len(ALERTMANAGER.packages) - 1)


def test_a_later_build_makes_only_what_is_missing_or_asked_for(tmp_path: Path) -> None:
    compiler, expected = Compiler(tmp_path / "bin"), list(_PACKAGES)
    build(compiler.environment, say=silent)
    build({**compiler.environment, "PATH": ""}, say=silent)  # nothing, and needs no Go
    shutil.rmtree(KUEUE.crd_folder(compiler.environment))
    build(compiler.environment, say=silent)
    assert _crds(compiler, KUEUE)
    assert [call.split()[-1] for call in compiler.calls] == expected
    shutil.rmtree(KUEUE.cache_folder(compiler.environment))
    build(compiler.environment, say=silent)
    expected += KUEUE.packages.values()
    assert [call.split()[-1] for call in compiler.calls] == expected
    build(compiler.environment, say=silent, has_real_nodes=True)
    expected += (package for module in NODE_MODULES for package in module.packages.values())
    assert [call.split()[-1] for call in compiler.calls] == expected
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


def test_of_two_concurrent_builds_only_one_builds(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin", does='sleep 0.05; echo program >"$2"')
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: build(compiler.environment, say=silent), range(2)))
    assert len(compiler.calls) == len(_PACKAGES)


def test_a_failed_build_reports_the_output_of_go_and_leaves_the_crds_and_no_program(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin", does="echo 'no such host: proxy' >&2; echo half >\"$2\"; exit 1")
    with pytest.raises(PlatformError, match=r"go build failed(?s:.*)no such host: proxy"):
        build(compiler.environment, say=silent)
    assert all(_crds(compiler, module) for module in MODULES if module.crds)
    with pytest.raises(RefusedError):
        find_programs({**compiler.environment, "PATH": ""})
    again = Compiler(tmp_path / "again")
    build(again.environment, say=silent)
    assert len(again.calls) == len(_PACKAGES)


def test_an_operator_or_an_earlier_version_that_fails_to_build_leaves_everything_before_it(tmp_path: Path) -> None:
    for name, title in (("kuberay", "KubeRay operator"), ("kuberay-previous", PREVIOUS_KUBERAY.title)):
        does = f'case "$PWD" in */{name}) exit 1; esac; echo program >"$2"; chmod +x "$2"'
        (tmp_path / name).mkdir()
        compiler = Compiler(tmp_path / name / "bin", does=does)
        with pytest.raises(PlatformError, match=title):
            build(compiler.environment, say=silent)
        assert find_programs({**compiler.environment, "PATH": ""})
    for module in MODULES:
        assert all((module.cache_folder(compiler.environment) / program).is_file() for program in module.packages)


def test_without_go_the_error_names_the_version_to_install(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"no `go` on PATH\n  remedy: install Go 1\.\d+"):
        build({"PATH": "", "RTP_ENGINES": str(tmp_path)}, say=silent)
