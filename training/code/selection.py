"""The files of a code folder that are copied, and what is left out and why."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.spec.errors import RefusedError, SettingsError
from observability.quantities import listed
from training.code.rules import (
    HEAD_BYTES,
    LIMIT_BYTES,
    MADE_BY_PROGRAM,
    SECRET,
    SKIPPED_FOLDERS,
    check_path,
    has_secret,
    skipped,
)

_SHOWN = 5
_GIT_SECONDS = 60
_MIB = 2**20
_NOTHING_FOUND_IS_1 = frozenset({"check-ignore", "rev-parse"})


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The files of a code folder.

    Attributes:
        files: size in bytes of each file, by path relative to the folder, sorted.
        left_out: reason for each path that is left out; a folder's path ends with a slash and stands for all in it.
    """

    files: Mapping[str, int]
    left_out: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())

    def leaves_out(self, path: str) -> bool:
        """Whether a path, or a folder that it is in, is left out."""
        above = [path[: index + 1] for index, one in enumerate(path) if one == "/"]
        return any(one in self.left_out for one in (path, *above))


def select(folder: Path, *, limit: int = LIMIT_BYTES, is_copy: bool = False) -> Selection:
    """The files of a folder.

    In a git work tree those that git does not ignore, otherwise all; in both cases without secrets and what programs make.

    Args:
        folder: the folder.
        limit: largest size of all files together, in bytes.
        is_copy: it is a session's copy: git is not asked, and what cannot be copied back is left out instead of refused.

    Raises:
        SettingsError: it is no folder, a name cannot be copied, or a link leads out of it.
        RefusedError: the files are larger than the limit; names the largest.
    """
    if not folder.is_dir():
        reason = "it is a file" if folder.exists() else "no such folder"
        raise SettingsError(f"code folder {folder}: {reason}", remedy="CODE=… is the folder with your code")
    root = folder.resolve()
    files: dict[str, int] = {}
    ignored = None if is_copy else _ignored(root)
    left_out = dict.fromkeys(ignored or (), "git ignores it")
    for path in _walked(root, left_out) if ignored is None else _listed(root):
        by_name = skipped(path)
        if by_name is not None:
            left_out[by_name[0]] = by_name[1]
            continue
        try:
            check_path(path)
            reason = _reason_of_file(root, path)
        except SettingsError:
            if not is_copy:
                raise
            reason = "cannot be copied"
        if reason:
            left_out[path] = reason
        else:
            files[path] = (root / path).stat().st_size
    found = Selection(files=dict(sorted(files.items())), left_out=dict(sorted(left_out.items())))
    if found.size > limit:
        raise RefusedError(
            f"code folder {folder} has {found.size / _MIB:.1f} MiB, more than {limit / _MIB:g}{describe_largest(found)}",
            remedy="move data elsewhere, or let .gitignore name it",
        )
    return found


def require_files(folder: Path, selection: Selection) -> None:
    """Refuse a folder without files to copy.

    Raises:
        SettingsError: there are none; says how many are left out.
    """
    if not selection.files:
        why = f": everything in it is left out ({describe_left_out(selection)})" if selection.left_out else ""
        raise SettingsError(f"code folder {folder} has no files{why}", remedy="CODE=… is the folder with your code")


def describe_largest(selection: Selection | None) -> str:
    """The largest files, to continue a message, a line each; empty where the files are not known."""
    if selection is None:
        return ""
    largest = sorted(selection.files.items(), key=lambda one: -one[1])[:_SHOWN]
    return "; the largest files:" + "".join(f"\n  {size / _MIB:.1f} MiB {path}" for path, size in largest)


def describe_left_out(selection: Selection) -> str:
    """What is left out, secrets first, in one line; empty if nothing is."""
    ordered = sorted(selection.left_out.items(), key=lambda one: (one[1] != SECRET, one[0]))
    return listed([f"{path} ({reason})" for path, reason in ordered], most=_SHOWN)


def ignored_by_git(folder: Path, paths: Iterable[str]) -> frozenset[str]:
    """Those of some paths, which need not exist, that git ignores in a folder."""
    names = sorted(paths)
    if not names or not _is_work_tree(folder):
        return frozenset()
    done = _git(folder, "check-ignore", "-z", "--stdin", data="\0".join(names))
    return frozenset(one for one in done.stdout.split("\0") if one)


def commit_of(folder: Path, selection: Selection) -> tuple[str | None, bool | None]:
    """The commit of the work tree that a folder is in, and whether its selected files differ from it; None, None without one."""
    root = folder.resolve()
    if not _is_work_tree(root):
        return None, None
    commit = _git(root, "rev-parse", "--verify", "--quiet", "HEAD").stdout.strip()
    if not commit:
        return None, None
    tracked = _git(root, "diff", "--name-only", "-z", "--relative", "HEAD", "--", ".").stdout
    untracked = _git(root, "ls-files", "-z", "--others", "--exclude-standard").stdout
    # What is left out is no part of the code. A deleted file is in neither, and differs.
    changed = [path for path in f"{tracked}{untracked}".split("\0") if path and not selection.leaves_out(path)]
    return commit, any(skipped(path) is None for path in changed)


def unreadable(path: str, error: OSError) -> SettingsError:
    """The error for a file of a code folder that cannot be read."""
    return SettingsError(
        f"{path} of the code folder cannot be read: {error.strerror}",
        remedy="make it readable, or let .gitignore name it",
    )


def _reason_of_file(root: Path, path: str) -> str:
    """Why a file is left out because of what it is; empty if it is not."""
    file = root / path
    if file.is_symlink():
        target = file.resolve()
        if not target.is_relative_to(root):
            raise SettingsError(
                f"{path} of the code folder links to {target}, outside of the folder",
                remedy="copy what it links to into the folder, or let .gitignore name the link",
            )
        return "a link; its target is copied"
    if not file.is_file():
        return "not a file"
    try:
        with file.open("rb") as opened:
            return SECRET if has_secret(opened.read(HEAD_BYTES)) else ""
    except OSError as error:
        raise unreadable(path, error) from error


def _walked(root: Path, left_out: dict[str, str]) -> Iterator[str]:
    """All files below a folder; folders that are skipped are added to `left_out`."""
    for base, folders, names in os.walk(root):
        here = Path(base)
        for name in sorted(folders):
            below = here / name
            path = below.relative_to(root).as_posix()
            if below.is_symlink():
                folders.remove(name)
                yield path
            elif name in SKIPPED_FOLDERS or (below / "pyvenv.cfg").exists():
                folders.remove(name)
                left_out[f"{path}/"] = MADE_BY_PROGRAM
        for name in names:
            yield (here / name).relative_to(root).as_posix()


def _listed(root: Path) -> list[str]:
    """Existing files that git tracks or would add."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout.split("\0")
    return [path for path in dict.fromkeys(listed) if path and os.path.lexists(root / path)]


def _ignored(root: Path) -> list[str] | None:
    """Paths that git ignores, folders with a slash at the end; None outside of a work tree."""
    if not _is_work_tree(root):
        return None
    listed = _git(root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory").stdout
    return [path for path in listed.split("\0") if path and path != "./"]


def _is_work_tree(folder: Path) -> bool:
    above = (folder, *folder.parents)
    if not any((one / ".git").exists() for one in above):
        return False
    if shutil.which("git") is None:
        raise RefusedError(
            f"code folder {folder} is in a git work tree, and `git` is not on PATH to tell what it ignores",
            remedy="install git",
        )
    return True


def _git(folder: Path, *arguments: str, data: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=environment,
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=_GIT_SECONDS,
        check=False,
    )
    if done.returncode and not (arguments[0] in _NOTHING_FOUND_IS_1 and done.returncode == 1):
        raise RefusedError(f"git {arguments[0]} in {folder}: {' '.join(done.stderr.split())}")
    return done
