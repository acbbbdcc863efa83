"""Packing a code folder, the identity of its content, and unpacking it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import re
import shutil
import stat
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.errors import PlatformError, RefusedError, SettingsError
from tests.training.code.projects import FILES, committed, git, write
from training.code.archive import CodeArchive, pack, read_archive, unpack
from training.code.identity import CodeIdentity

HASHES = re.compile(r"sha256 [0-9a-f]{64}, recorded is [0-9a-f]{64}")


def sha256(folder: Path) -> str:
    return pack(folder).identity.sha256


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_equal_files_have_an_equal_hash_whatever_their_order_times_modes_and_owners_are(tmp_path: Path) -> None:
    expected = sha256(write(tmp_path / "project"))
    assert sha256(write(tmp_path / "in-reverse", dict(reversed(FILES.items())))) == expected
    before = os.umask(0o077)
    try:
        other = write(tmp_path / "elsewhere" / "copy")
    finally:
        os.umask(before)
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
        if os.getuid() == 0:  # only root changes owners
            os.chown(path, 4711, 4712)
    assert sha256(other) == expected


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda folder: (folder / "nets.py").write_text("changed\n"),
    "executable": lambda folder: (folder / "nets.py").chmod(0o755),
    "renamed": lambda folder: (folder / "nets.py").rename(folder / "nest.py"),
    "removed": lambda folder: (folder / "nets.py").unlink(),
    "an empty file": lambda folder: (folder / "torch_nets.py").touch(),
}


def test_a_change_changes_the_hash(tmp_path: Path) -> None:
    before = sha256(write(tmp_path / "project"))
    for name, change in CHANGES.items():
        change(write(tmp_path / name))
        assert sha256(tmp_path / name) != before, name


@given(
    files=st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="/\\", exclude_categories=("Cc", "Cs")), min_size=1)
        .filter(lambda name: name not in {".", ".."} and len(name.encode()) < 200)
        .map(lambda name: f"notes/{name}.txt"),
        st.binary(max_size=50),
        min_size=1,
        max_size=5,
    )
)
def test_what_was_unpacked_packs_to_the_same_hash(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("project")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "notes").mkdir()
    for path, data in files.items():
        (folder / path).write_bytes(data)
    archive = pack(folder)
    copy = folder.parent / f"{folder.name}-copy"
    unpack(archive, copy)
    assert pack(copy).identity.sha256 == archive.identity.sha256


def test_files_are_read_only_once_unpacked_and_keep_their_executable_bit(tmp_path: Path) -> None:
    folder = write(tmp_path / "project")
    CHANGES["executable"](folder)
    unpack(pack(folder), tmp_path / "copy")
    assert contents(tmp_path / "copy") == FILES
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "copy").iterdir() if path.is_file()}
    assert modes == {"nets.py": 0o555, "train.yaml": 0o444}


def test_a_changed_byte_is_refused_with_both_hashes_or_changes_nothing(tmp_path: Path) -> None:
    archive = pack(write(tmp_path / "project"))
    size = len(archive.data)
    refused = []
    for place in [*range(10), *random.Random(0).sample(range(10, size - 8), 30), *range(size - 8, size)]:
        data = bytearray(archive.data)
        data[place] ^= 1
        target = tmp_path / str(place)
        try:
            unpack(replace(archive, data=bytes(data)), target)
        except PlatformError as error:
            refused.append((str(error), target))
        else:
            assert contents(target) == FILES  # gzip's own header, such as its time
    assert len(refused) > 30
    for message, target in refused:
        assert HASHES.search(message)
        assert archive.identity.sha256 in message
        assert not target.exists()


def test_a_truncated_archive_is_refused_with_both_hashes_and_one_of_another_compressor_is_not(tmp_path: Path) -> None:
    archive = pack(write(tmp_path / "project"))
    for kept in (0.0, 0.5, 0.999):
        cut = replace(archive, data=archive.data[: int(len(archive.data) * kept)])
        with pytest.raises(PlatformError, match=HASHES.pattern + r"( and it is cut off)?"):
            unpack(cut, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
    file = tmp_path / "code.tar.gz"
    file.write_bytes(gzip.compress(gzip.decompress(archive.data), compresslevel=1))
    assert read_archive(file).identity.sha256 == archive.identity.sha256


def crafted(*members: tarfile.TarInfo) -> CodeArchive:
    """An archive of these members, which verifies."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    tar_bytes = buffer.getvalue()
    identity = CodeIdentity(sha256=hashlib.sha256(tar_bytes).hexdigest())
    return CodeArchive(identity=identity, data=gzip.compress(tar_bytes), source=Path("crafted.tar.gz"))


def member(name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
    return info


def test_an_archive_of_anything_but_files_inside_its_folder_is_refused(tmp_path: Path) -> None:
    for wrong in (
        member("../outside.py"),
        member("/outside.py"),
        member("package/../../outside.py"),
        member("link.py", kind=tarfile.SYMTYPE, link="a.py"),
        member("link.py", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("link.py", kind=tarfile.LNKTYPE, link="a.py"),
        member("pipe", kind=tarfile.FIFOTYPE),
        member("folder", kind=tarfile.DIRTYPE),
    ):
        with pytest.raises(SettingsError, match=r"crafted\.tar\.gz.*no code archive"):
            unpack(crafted(member("a.py"), wrong), tmp_path / "target" / "copy")
        assert list(tmp_path.rglob("*.py")) == [], wrong


def test_a_file_that_is_no_archive_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"not gzip")
    with pytest.raises(SettingsError, match=r"x\.tar\.gz"):
        read_archive(tmp_path / "x.tar.gz")
    (tmp_path / "y.tar.gz").write_bytes(gzip.compress(b"not a tar" * 100))
    with pytest.raises(SettingsError, match=r"y\.tar\.gz.*no code archive"):
        unpack(read_archive(tmp_path / "y.tar.gz"), tmp_path / "copy")
    with pytest.raises(SettingsError, match=r"z\.tar\.gz: no such file"):
        read_archive(tmp_path / "z.tar.gz")


def test_an_unpacked_folder_is_used_again_if_it_is_equal(tmp_path: Path) -> None:
    archive = pack(write(tmp_path / "project"))
    unpack(archive, tmp_path / "copy")
    before = (tmp_path / "copy" / "nets.py").stat().st_ino
    (tmp_path / "copy" / "__pycache__").mkdir()
    unpack(archive, tmp_path / "copy")
    assert (tmp_path / "copy" / "nets.py").stat().st_ino == before


def test_an_unpacked_folder_that_was_changed_is_refused(tmp_path: Path) -> None:
    archive = pack(write(tmp_path / "project"))
    for name, named in (("a byte", "nets.py"), ("removed", "nets.py"), ("an empty file", "torch_nets.py")):
        copy = tmp_path / name
        unpack(archive, copy)
        (copy / "nets.py").chmod(0o644)
        CHANGES[name](copy)
        with pytest.raises(PlatformError, match=rf"{named} differ"):
            unpack(archive, copy)


def test_several_drivers_unpack_into_one_folder_at_the_same_time(tmp_path: Path) -> None:
    archive = pack(write(tmp_path / "project"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: unpack(archive, tmp_path / "runs" / "copy"), range(24)))
    assert contents(tmp_path / "runs" / "copy") == FILES
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["copy"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "project")
    (folder / "nets.py").chmod(0)
    if os.access(folder / "nets.py", os.R_OK):  # root reads everything
        opened = Path.open

        def refuse(path: Path, *arguments: object, **options: object) -> object:
            if path.name == "nets.py":
                raise PermissionError(13, "Permission denied", str(path))
            return opened(path, *arguments, **options)  # type: ignore[call-overload]

        monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SettingsError, match=r"nets\.py.*Permission denied"):
        pack(folder)


def test_the_identity_names_the_commit_of_a_clean_folder(tmp_path: Path) -> None:
    identity = pack(committed(tmp_path / "project")).identity
    assert identity.revision is not None
    assert (len(identity.revision), identity.is_dirty) == (40, False)
    assert identity.describe() == f"{identity.sha256[:16]} (commit {identity.revision[:7]})"


def test_a_folder_is_dirty_if_what_is_packed_differs_from_the_commit(tmp_path: Path) -> None:
    for name, change in CHANGES.items():
        folder = committed(tmp_path / name)
        change(folder)
        assert pack(folder).identity.is_dirty is True, name
        git(folder, "add", ".")
        assert pack(folder).identity.is_dirty is True, f"{name}, staged"
    clean = committed(tmp_path / "clean")
    (clean / ".git" / "info" / "exclude").write_text("*.log\n")
    (clean / "a.log").touch()
    write(clean, {"__pycache__/nets.cpython-312.pyc": "", ".env": "TOKEN=x\n"})
    assert pack(clean).identity.is_dirty is False


def test_a_relative_path_names_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(write(tmp_path / "tree"), "init")
    folder = write(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "tree")
    (tmp_path / "link").symlink_to(folder)
    expected = pack(folder).identity
    for given_path in ("../project", "../project/", "../tree/../project", "../link"):
        assert pack(Path(given_path)).identity == expected
    assert expected.revision is None


def test_a_folder_of_a_larger_work_tree_is_not_dirty_because_of_its_neighbours(tmp_path: Path) -> None:
    root = committed(tmp_path / "work", {"mine/nets.py": "a = 1\n", "other/x.py": "b = 1\n"})
    before = pack(root / "mine").identity
    (root / "other" / "x.py").write_text("b = 2\n")
    (root / "other" / "new.py").touch()
    assert pack(root / "mine").identity == before
    assert before.is_dirty is False
    (root / "mine" / "nets.py").write_text("a = 2\n")
    assert pack(root / "mine").identity.is_dirty is True


def test_without_git_a_folder_has_a_hash_only_and_a_work_tree_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tree = write(tmp_path / "project"), write(tmp_path / "tree")
    identity = pack(folder).identity
    assert (identity.revision, identity.is_dirty, identity.describe()) == (None, None, identity.sha256[:16])
    git(tree, "init")
    assert pack(tree).identity.revision is None, "there is no commit"
    monkeypatch.setenv("PATH", "")
    assert pack(folder).identity == identity
    with pytest.raises(RefusedError, match="install git"):
        pack(tree)


def test_a_program_at_the_top_of_the_folder_is_packed_and_git_s_own_folders_are_not(tmp_path: Path) -> None:
    folder = committed(tmp_path / "project", {**FILES, "__main__.py": "", "__init__.py": "", "tests/test_nets.py": ""})
    before = sha256(folder)
    shutil.copytree(folder / ".git", folder / "package" / ".git")
    assert sha256(folder) == before
    unpack(pack(folder), tmp_path / "copy")
    assert (tmp_path / "copy" / "__main__.py").exists()


def test_a_module_of_another_run_does_not_hide_the_folder_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(write(tmp_path / "earlier", {"nets_of_mine.py": ""})))
    __import__("nets_of_mine")
    with pytest.raises(SettingsError, match="nets_of_mine"):
        pack(write(tmp_path / "project", {"nets_of_mine.py": "a = 1\n"}))
