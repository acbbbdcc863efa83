"""What a machine without real nodes is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.node import prerequisites
from infra.lifecycle.sandbox.node.prerequisites import PACKAGES, SYSTEM_PATH, check
from infra.spec.errors import RefusedError
from tests.engines.real_nodes import needs_real_nodes
from tests.engines.small_disk import small_disk


@pytest.fixture
def environment() -> dict[str, str]:
    """Environment variables of a machine that can have real nodes; skips on others."""
    return needs_real_nodes()


def test_other_users_than_root_and_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(RefusedError, match=r"(?s)needs root.*without --real the sandbox needs none of this"):
        check(tmp_path / "nodes", {})
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RefusedError, match="needs Linux; this is darwin"):
        check(tmp_path / "nodes", {})


def test_a_lost_program_is_named(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{environment['PATH']}:{SYSTEM_PATH}"
    monkeypatch.setattr(prerequisites, "SYSTEM_PATH", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in (*PACKAGES, "true"):
        found = shutil.which(program, path=path)
        assert found is not None
        (tmp_path / program).symlink_to(found)
    for missing in ("containerd", "runc", "iptables", "openssl"):
        link = (tmp_path / missing).rename(tmp_path / "away")
        with pytest.raises(RefusedError, match=rf"(?s){missing}: not on PATH.*apt-get install .* {PACKAGES[missing]};"):
            check(tmp_path / "nodes", {**environment, "PATH": str(tmp_path)})
        link.rename(tmp_path / missing)


def test_missing_parts_are_named(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"(?s)kubelet, kube-proxy, coredns.*make engines REAL=1"):
        check(tmp_path / "nodes", {**environment, "RTP_ENGINES": str(tmp_path)})
    monkeypatch.setattr(prerequisites, "_PLUGIN_FOLDERS", (tmp_path,))
    with pytest.raises(RefusedError, match=r"(?s)ptp, host-local.*containernetworking-plugins"):
        check(tmp_path / "nodes", environment)


def test_too_small_a_disk_is_refused_with_what_is_free(environment: dict[str, str], tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", size="64m") as disk,
        pytest.raises(RefusedError, match=r"needs 4 GiB in .*disk, .*; 0\.1 GiB are free"),
    ):
        check(disk / ".local" / "nodes", environment)


def test_on_a_file_system_that_takes_no_overlay_images_are_copied(environment: dict[str, str], tmp_path: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    program = (
        "import os; from pathlib import Path; from infra.lifecycle.sandbox.node.prerequisites import check;"
        f"print(check(Path('{tmp_path}/merged/nodes'), os.environ).snapshotter)"
    )
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = f'mount -t overlay overlay -o {options} {tmp_path}/merged && exec "$0" -c "$1"'
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "native\n"


def test_this_machines_own_programs_are_found(environment: dict[str, str], tmp_path: Path) -> None:
    tools = check(tmp_path / "nodes", environment)
    assert set(tools.programs) >= {*PACKAGES, "kubelet", "kube-proxy", "coredns", "device-plugin", "pause"}
    assert (tools.plugins / "bridge").is_file()
    assert list(tmp_path.iterdir()) == []
