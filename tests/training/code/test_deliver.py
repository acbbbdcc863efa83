"""The program that unpacks a job's code in its pods, as a process."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import run_command
from tests.training.cli.command import HEAVY, ROOT
from training.code.archive import CodeArchive, pack, read_archive
from training.code.identity import CodeIdentity

_PROGRAM = """
import json, sys
from training.code.deliver import main
status = main(sys.argv[1:])
print(json.dumps(list(sys.modules)), file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture
def archive(tmp_path: Path) -> CodeArchive:
    """An archive whose parts are in `tmp_path/parts`."""
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "nets.py").write_text("WIDTH = 3\n")
    (folder / "package" / "run.sh").write_text("true\n")
    (folder / "package" / "run.sh").chmod(0o755)
    found = pack(folder)
    write_parts(tmp_path / "parts", found.data)
    return found


def write_parts(folder: Path, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    half = len(data) // 2
    for number, part in enumerate((data[:half], data[half:])):
        (folder / f"part-{number:02d}").write_bytes(part)


def deliver(folder: Path, identity: CodeIdentity) -> subprocess.CompletedProcess[str]:
    """Run it on `folder/parts`; `folder/delivered` is the volume."""
    arguments = [f"--identity={json.dumps(identity.dump())}", f"--parts={folder / 'parts'}"]
    arguments += [f"--archive={folder / 'delivered/archive/code.tar.gz'}", f"--files={folder / 'delivered/files'}"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.defpath}
    return run_command([sys.executable, "-c", _PROGRAM, *arguments], cwd=Path("/"), env=environment, seconds=60)


def test_the_archive_and_its_files_are_written_read_only(tmp_path: Path, archive: CodeArchive) -> None:
    identity = CodeIdentity(sha256=archive.identity.sha256, revision="c" * 40, is_dirty=True)
    answer = deliver(tmp_path, identity)
    assert answer.returncode == 0, answer.stderr
    assert f"code {identity.describe()}" in answer.stdout
    files = tmp_path / "delivered" / "files"
    assert (files / "nets.py").read_text() == "WIDTH = 3\n"
    assert stat.S_IMODE((files / "nets.py").stat().st_mode) == 0o444
    assert stat.S_IMODE((files / "package" / "run.sh").stat().st_mode) == 0o555
    kept = read_archive(tmp_path / "delivered" / "archive" / "code.tar.gz")
    assert (kept.identity, kept.data) == (identity, archive.data)


def test_it_needs_the_standard_library_only_and_accepts_what_is_there(tmp_path: Path, archive: CodeArchive) -> None:
    modules = json.loads(deliver(tmp_path, archive.identity).stderr.splitlines()[-1])
    assert (HEAVY | {"yaml", "pydantic"}).intersection(modules) == frozenset()
    assert deliver(tmp_path, archive.identity).returncode == 0


def refusal(folder: Path, identity: CodeIdentity) -> str:
    """What it says as it fails."""
    answer = deliver(folder, identity)
    assert answer.returncode == 1
    return answer.stderr


def test_other_bytes_are_refused_with_both_hashes_before_a_file_is_written(
    tmp_path: Path, archive: CodeArchive
) -> None:
    part = tmp_path / "parts" / "part-01"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    said = refusal(tmp_path, archive.identity)
    assert f"recorded is {archive.identity.sha256}" in said
    assert "has sha256 " in said
    assert "CODE=folder" in said
    (tmp_path / "project" / "nets.py").write_text("WIDTH = 4\n")
    other = pack(tmp_path / "project")
    write_parts(tmp_path / "parts", other.data)
    expected = f"has sha256 {other.identity.sha256}, recorded is {archive.identity.sha256}"
    assert expected in refusal(tmp_path, archive.identity)
    assert not (tmp_path / "delivered").exists()


def test_a_missing_part_and_a_volume_without_room_are_errors(tmp_path: Path, archive: CodeArchive) -> None:
    (tmp_path / "delivered").write_text("in the way")
    assert "error: the job's code cannot be unpacked" in refusal(tmp_path, archive.identity)
    for gone in ("part-00", "part-01"):
        (tmp_path / "parts" / gone).rename(tmp_path / gone)
        assert "1 ConfigMaps of the job" in refusal(tmp_path, archive.identity)
        (tmp_path / gone).rename(tmp_path / "parts" / gone)
