"""A code folder as one file: packed so that equal folders give equal archives, and verified before it is unpacked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from infra.spec.errors import PlatformError, SettingsError
from observability.quantities import listed
from training.code.identity import CodeIdentity, identity_file
from training.code.rules import check_installed, check_modules, check_path
from training.code.selection import Selection, commit_of, require_files, select, unreadable

_CHUNK = 2**16


@dataclass(frozen=True, kw_only=True)
class CodeArchive:
    """A packed code folder.

    Attributes:
        identity: of its content.
        data: the archive, a gzipped tar.
        source: the folder or file that it was read from.
        selection: its files and what was left out; None if it was read from a file.
    """

    identity: CodeIdentity
    data: bytes = field(repr=False)
    source: Path
    selection: Selection | None = None

    @property
    def folder(self) -> Path | None:
        """The folder that it was packed from; None if it was read from a file."""
        return None if self.selection is None else self.source


def pack(folder: Path) -> CodeArchive:
    """Pack the files of a code folder: sorted, without times and owners.

    Raises:
        SettingsError: it is no folder, has no files, or a module that hides another one.
        RefusedError: it is too large.
    """
    selection = select(folder)
    require_files(folder, selection)
    check_modules(selection.files)
    check_installed(selection.files, folder)
    tar = _tar(folder.resolve(), selection.files)
    revision, is_dirty = commit_of(folder, selection)
    identity = CodeIdentity(sha256=hashlib.sha256(tar).hexdigest(), revision=revision, is_dirty=is_dirty)
    return CodeArchive(
        identity=identity, data=gzip.compress(tar, mtime=0), source=folder.resolve(), selection=selection
    )


def read_archive(file: Path, expected: CodeIdentity | None = None) -> CodeArchive:
    """An archive that a run has kept.

    Args:
        file: the archive.
        expected: its identity; None takes the one in the JSON file beside it, and without that file knows no git revision.

    Raises:
        SettingsError: there is no such file, or it is no archive.
        PlatformError: it is not the archive that was recorded.
    """
    try:
        data = file.read_bytes()
        beside = identity_file(file)
        if expected is None and beside.exists():
            expected = CodeIdentity.load(json.loads(beside.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise SettingsError(
            f"code archive {file}: no such file",
            remedy="CODE=… is a folder with your code, or an archive that a run has kept: .local/runs/NAME/code/*.tar.gz",
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"code archive {file} cannot be read: {type(error).__name__}: {error}",
            remedy=f"restore it and {identity_file(file).name} beside it from a backup",
        ) from error
    if expected is None:
        try:
            expected = CodeIdentity(sha256=hashlib.sha256(gzip.decompress(data)).hexdigest())
        except (OSError, EOFError, zlib.error) as error:
            raise SettingsError(
                f"code archive {file} is not a gzipped tar: {error}",
                remedy="CODE=… is a folder with your code, or an archive that a run has kept",
            ) from error
    verified_tar(data, expected.sha256, name=str(file))
    return CodeArchive(identity=expected, data=data, source=file)


def verified_tar(data: bytes, sha256: str, *, name: str) -> bytes:
    """The tar in an archive.

    Args:
        data: the archive.
        sha256: what its tar must hash to.
        name: of the archive, for the message.

    Raises:
        PlatformError: it hashes to something else; with both hashes.
    """
    tar, is_complete = _decompressed(data)
    found = hashlib.sha256(tar).hexdigest()
    if found != sha256 or not is_complete:
        cut = " and it is cut off" if found == sha256 else ""
        raise PlatformError(
            f"{name}: the content of the code archive has sha256 {found}, recorded is {sha256}{cut}",
            remedy="it was changed or damaged: start again with CODE=folder, or restore the archive from a backup",
        )
    return tar


def unpack(archive: CodeArchive, target: Path) -> None:
    """Write the files of an archive, read-only, into a folder that appears only when it is complete.

    A folder that exists is compared instead: it is what earlier ranks have imported from.

    Raises:
        SettingsError: the archive has something else than files inside its folder.
        PlatformError: the archive is not the recorded one, or the existing folder has other content.
    """
    with _opened(archive) as (tar, members):
        if target.exists():
            _require_equal(tar, members, target)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            partial.chmod(0o755)
            for member in members:
                path = (
                    partial / member.name
                )  # not tar.extract: its filters came with Python 3.11.4, and Debian 12 has 3.11.2
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(_content(tar, member))
                path.chmod(member.mode & 0o555)
            _rename(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def file_names(archive: CodeArchive) -> list[str]:
    """The paths of the files in an archive; raises as `unpack`."""
    with _opened(archive) as (_, members):
        return [member.name for member in members]


@contextmanager
def _opened(archive: CodeArchive) -> Iterator[tuple[tarfile.TarFile, list[tarfile.TarInfo]]]:
    """The verified tar of an archive with its members: files inside its folder, as `pack` writes them."""
    content = verified_tar(archive.data, archive.identity.sha256, name=str(archive.source))
    refused = f"{archive.source} is no code archive"
    remedy = "CODE=… is a folder with your code, or an archive that a run has kept"
    try:
        tar = tarfile.open(fileobj=io.BytesIO(content), mode="r:")  # noqa: SIM115 - closed below
        members = tar.getmembers()
    except tarfile.TarError as error:
        raise SettingsError(f"{refused}: {error}", remedy=remedy) from error
    with tar:
        for member in members:
            if not member.isreg():
                raise SettingsError(f"{refused}: {member.name} in it is not a file", remedy=remedy)
            try:
                check_path(member.name)
            except SettingsError as error:
                raise SettingsError(f"{refused}: {error.args[0]}", remedy=remedy) from error
        yield tar, members


def _rename(partial: Path, target: Path) -> None:
    try:
        partial.rename(target)
    except OSError:
        if not target.exists():  # another driver of the same run was faster
            raise


def _require_equal(tar: tarfile.TarFile, members: list[tarfile.TarInfo], folder: Path) -> None:
    changed = [member.name for member in members if _content(tar, member) != _bytes(folder / member.name)]
    known = {member.name for member in members}
    present = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    # Modules only: what user code writes beside itself changes nothing that is imported.
    changed += sorted(path for path in present if path.endswith(".py") and path not in known)
    if changed:
        raise PlatformError(
            f"{folder}: {listed(changed)} differ from the run's code archive",
            remedy=f"delete the folder, which is unpacked again; to run changed code: CODE={folder} NAME=another",
        )


def _content(opened: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = opened.extractfile(member)
    assert file is not None, "an archive has files only"
    return file.read()


def _bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _tar(root: Path, paths: Iterable[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(paths):
            try:
                with (root / path).open("rb") as opened:
                    data = opened.read()
                    is_executable = bool(os.fstat(opened.fileno()).st_mode & 0o100)
            except OSError as error:
                raise unreadable(path, error) from error
            member = tarfile.TarInfo(path)  # time, user and group are 0
            member.size = len(data)
            member.mode = 0o755 if is_executable else 0o644
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _decompressed(data: bytes) -> tuple[bytes, bool]:
    """What an archive expands to, up to the first damaged block, and whether it is complete.

    The hash of the content is compared, not the compressor's own checksum.
    """
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    content = io.BytesIO()
    with suppress(zlib.error):
        for start in range(0, len(data), _CHUNK):
            content.write(decompressor.decompress(data[start : start + _CHUNK]))
    return content.getvalue(), decompressor.eof
