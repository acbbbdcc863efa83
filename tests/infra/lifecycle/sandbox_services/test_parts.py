"""Parts of the services that need no node: certificates, folders, what is written down."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.modules import PROMETHEUS
from infra.lifecycle.sandbox.recorded import AccessPoint, recorded
from infra.lifecycle.sandbox.services.authority import authority_folder, server_certificate
from infra.lifecycle.sandbox.services.facts import Services
from infra.lifecycle.sandbox.services.postgres import find_postgres
from infra.lifecycle.sandbox.services.shared_files import shared_volume
from infra.lifecycle.sandbox.services.start import find_prometheus
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.settings import load_environment

ADDRESS = "10.208.0.2"


def services(folder: Path) -> Services:
    return Services(
        address=ADDRESS,
        shared=str(folder / "shared"),
        read_only=str(folder / "read-only"),
        database_password=None,
        has_aws=False,
        has_prometheus=False,
        missing=("PostgreSQL is missing",),
    )


def volume(handle: str, *options: str) -> Manifest:
    spec = {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": handle}, "mountOptions": list(options), "capacity": {}}
    return {"kind": "PersistentVolume", "metadata": {"name": "runs-research"}, "spec": spec}


def test_the_database_has_a_certificate_that_clients_of_its_address_accept(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "engines")}
    authority = authority_folder(environment)
    certificate = tmp_path / "server.crt"
    server_certificate(authority, address=ADDRESS, certificate=certificate, key=tmp_path / "server.key")
    verify: list[str | Path] = ["openssl", "verify", "-x509_strict", "-CAfile", authority / "ca.crt", "-verify_ip"]
    for address, status in ((ADDRESS, 0), ("10.208.0.3", 2)):
        assert subprocess.run([*verify, address, certificate], capture_output=True, check=False).returncode == status
    made = (authority / "ca.crt").read_bytes()
    assert (authority_folder(environment) / "ca.crt").read_bytes() == made
    assert [file.name for file in (tmp_path).iterdir() if file.name.startswith("authority-")] == []


def test_the_password_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    assert Services.read(tmp_path) is None
    services(tmp_path).write(tmp_path)
    assert Services.read(tmp_path) == services(tmp_path)
    assert stat.S_IMODE((tmp_path / "services.json").stat().st_mode) == 0o600


def test_a_folder_stands_in_for_an_access_point_with_its_owner_and_mode(tmp_path: Path) -> None:
    us = (os.getuid(), os.getgid())
    points = {"fsap-1": AccessPoint("/teams/research", *us, 0o750), "fsap-2": AccessPoint("/datasets", *us, 0o770)}
    found = shared_volume(volume("fs-1::fsap-1", "tls", "iam"), points, services(tmp_path))
    folder = tmp_path / "shared/fs-1/teams/research"
    assert found["spec"] == {"capacity": {}, "hostPath": {"path": str(folder), "type": "Directory"}}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert (folder.stat().st_uid, folder.stat().st_gid) == us
    read_only = shared_volume(volume("fs-1::fsap-2", "tls", "iam", "ro"), points, services(tmp_path))
    assert read_only["spec"]["hostPath"]["path"] == str(tmp_path / "read-only/fs-1/datasets")
    assert (tmp_path / "shared/fs-1/datasets").is_dir()


def test_the_access_points_of_a_stack_have_the_folders_of_its_teams() -> None:
    stack = recorded(load_environment("dev"))
    folders = {point.path: point for point in stack.access_points.values()}
    assert set(folders) == {"/datasets", *(f"/teams/{team.name}" for team in stack.outputs.teams)}
    assert folders["/datasets"] == ("/datasets", 1000, 1000, 0o770)
    assert stack.access_points[stack.facts.datasets_access_point].path == "/datasets"


def test_the_prometheus_of_the_release_precedes_that_of_the_machine(tmp_path: Path) -> None:
    environment = {"RTP_ENGINES": str(tmp_path / "engines")}
    ours, debians = PROMETHEUS.cache_folder(environment) / "prometheus", tmp_path / "bin" / "prometheus"
    for program in (debians, ours):
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
        assert find_prometheus(str(debians.parent), environment) == program
    with pytest.raises(RefusedError, match="not executable"):
        find_prometheus("", {"PROMETHEUS": str(tmp_path / "prometheus")})
    assert find_prometheus(str(tmp_path), {}) is None
    assert find_postgres(str(tmp_path), debian=tmp_path) is None
