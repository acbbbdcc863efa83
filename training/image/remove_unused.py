"""Remove what no job loads from an environment, and check that every library still finds those that it needs.

    python3 remove_unused.py SITE_PACKAGES LIST

It runs in the build of the trainer image, before any package of the repository is there: standard library only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Set
from pathlib import Path


def read_patterns(listing: Path) -> list[str]:
    """The patterns of a list, without comments."""
    lines = (line.strip() for line in listing.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def matches(site: Path, pattern: str) -> list[Path]:
    """What a pattern matches, with the metadata of a whole package.

    Raises:
        SystemExit: nothing, although the package is there: the list is out of date.
    """
    found = sorted(path for path in site.glob(pattern) if path.exists())
    if not found and (site / pattern.partition("/")[0]).is_dir():
        sys.exit(f"{pattern}: nothing in {site} matches; correct the list")
    if "/" not in pattern:
        found += sorted(site.glob(f"{pattern}-*.dist-info"))
    return found


def files(path: Path) -> list[Path]:
    """A file, or all files in a folder."""
    return [one for one in (path.rglob("*") if path.is_dir() else [path]) if one.is_file()]


def unmet(site: Path, removed: Set[str]) -> Iterator[tuple[Path, str]]:
    """Libraries and programs that need a removed library, by name, and that name."""
    for path in sorted(site.rglob("*")):
        if path.is_file() and not path.is_symlink() and _is_elf(path):
            done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
            lines = (line.split() for line in done.stdout.splitlines() if line.endswith("=> not found"))
            yield from ((path, words[0]) for words in lines if words[0] in removed)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def main(site: Path, listing: Path) -> None:
    """Remove and check; prints what was removed.

    Raises:
        SystemExit: a pattern matches nothing, or a library that is needed was removed.
    """
    total = sum(file.stat().st_size for file in files(site))
    found = [path for pattern in read_patterns(listing) for path in matches(site, pattern)]
    removed = {file: file.stat().st_size for path in found for file in files(path)}
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # it may have been in a folder of an earlier pattern
    for user, library in unmet(site, {file.name for file in removed}):
        sys.exit(f"{user.relative_to(site)} needs {library}, which was removed; correct the list")
    rest = total - sum(removed.values())
    print(f"{site}: {total / 1e9:.2f} GB before, {rest / 1e9:.2f} GB after")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
