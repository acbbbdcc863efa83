"""The checkout that an image is built from: its content, and how it differs from the commit.

The content decides the image's tag. The commit does not: it is recorded beside the image, so that the same files at another
commit are the same image.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from infra.lifecycle.image.recipes import RECIPES, ImageName, Recipe
from infra.spec.errors import PlatformError, RefusedError


class Source(NamedTuple):
    """The checkout to build from.

    Attributes:
        root: folder of the repository.
        revision: commit.
        content: sha256 of the files that the build takes: path, executable bit and bytes of each.
        changed: files that the build takes and that differ from the commit.
    """

    root: Path
    revision: str
    content: str
    changed: tuple[str, ...]

    @property
    def recorded_revision(self) -> str:
        """The commit, marked if files differ from it."""
        return self.revision + ("-dirty" if self.changed else "")


class IgnoreRules:
    """The rules of a .dockerignore file: the last rule that matches a path or a folder above it decides.

    It supports what this repository's file uses: `*`, `**/` and `!` (Docker documentation, "Build context", .dockerignore files).

    Args:
        text: content of the file.
    """

    def __init__(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        self._rules = [_rule(line) for line in lines if line and not line.startswith("#")]

    def takes(self, path: str) -> bool:
        """Whether a path, relative to the build context, is sent to the builder."""
        parts = path.split("/")
        prefixes = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        verdicts = [is_taken for pattern, is_taken in self._rules if any(map(pattern.fullmatch, prefixes))]
        return verdicts[-1] if verdicts else True


def _rule(line: str) -> tuple[re.Pattern[str], bool]:
    """Pattern of a rule, and whether it includes what it matches."""
    pattern = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return re.compile(pattern), line.startswith("!")


def read_source(root: Path, image: ImageName) -> Source:
    """Read the content of an image's build from disk, and the commit from git.

    Raises:
        PlatformError: the folder is not a git checkout with a commit.
    """
    recipe = RECIPES[image]
    paths = sorted(_paths(root, recipe))
    return Source(
        root=root,
        revision=_git(root, "rev-parse", "--verify", "HEAD").strip(),
        content=content_hash(root, paths),
        changed=tuple(_changed(root, recipe, paths)),
    )


def _paths(root: Path, recipe: Recipe) -> set[str]:
    """Files of the build: the Dockerfile, and what .dockerignore leaves of the context, also what git ignores."""
    rules = IgnoreRules((root / ".dockerignore").read_text(encoding="utf-8"))
    found = (path for entry in (recipe.lock, *recipe.context) for path in _files(root, entry))
    return {recipe.dockerfile, *(path for path in found if rules.takes(path))}


def _files(root: Path, entry: str) -> Iterator[str]:
    """A file, or all files of a folder; links count as files."""
    if not (root / entry).is_dir():
        yield entry
        return
    for folder, folders, names in os.walk(root / entry):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from ((Path(folder) / name).relative_to(root).as_posix() for name in (*names, *links))


def content_hash(root: Path, paths: Sequence[str]) -> str:
    """sha256 of path, executable bit and bytes of each file.

    Of the permissions only that bit: the Dockerfiles set the others, which depend on a checkout's umask.
    """
    found = hashlib.sha256()
    for path in paths:
        mode = (root / path).lstat().st_mode
        is_link, is_executable = stat.S_ISLNK(mode), bool(mode & stat.S_IXUSR)
        content = os.fsencode((root / path).readlink()) if is_link else (root / path).read_bytes()
        kind = "link" if is_link else "program" if is_executable else "file"
        found.update(f"{path}\0{kind}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return found.hexdigest()


def _changed(root: Path, recipe: Recipe, paths: Sequence[str]) -> Iterator[str]:
    """Files of the build that were changed, added (also if git ignores them) or deleted since the commit."""
    rules = IgnoreRules((root / ".dockerignore").read_text(encoding="utf-8"))
    options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")
    entries = _git(root, "status", *options, "--", recipe.dockerfile, recipe.lock, *recipe.context).split("\0")
    for path in (entry[3:] for entry in entries if entry):
        if path.endswith("/"):
            yield from (one for one in paths if one.startswith(path))
        elif path == recipe.dockerfile or rules.takes(path):
            yield path


def _git(root: Path, *arguments: str) -> str:
    try:
        answer = subprocess.run(["git", "-C", str(root), *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise RefusedError("no `git` on PATH", remedy="install git: an image's SBOM records the commit") from error
    if answer.returncode != 0:
        raise PlatformError(
            f"git {arguments[0]}: {answer.stderr.strip()}",
            remedy="build in a git checkout with a commit, which the SBOM records",
        )
    return answer.stdout


def require_committed(source: Source, image: ImageName) -> None:
    """Refuse to push a build with uncommitted changes.

    Raises:
        RefusedError: names the changed files.
    """
    if source.changed:
        raise RefusedError(
            f"{image}: not pushed, because files differ from the commit that its SBOM records: {', '.join(source.changed)}",
            remedy="commit these files",
        )
