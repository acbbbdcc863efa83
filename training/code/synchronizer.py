"""Makes two code folders equal, again and again, and remembers when they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from infra.spec.errors import PlatformError
from training.code.folder import ChangedError, Listing, Side
from training.code.three_way import Step, name_of_copy, steps


class Base:
    """The hashes that both folders last had in common, kept in a file."""

    def __init__(self, file: Path, *, folder: Path) -> None:
        """Read the file; one about another folder, or damaged, counts as empty: files that differ are then kept twice.

        Args:
            file: where it is kept.
            folder: the code folder of this machine.
        """
        self._file = file
        self._folder = str(folder.resolve())
        self.hashes: dict[str, str] = {}
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            if kept["folder"] == self._folder:
                self.hashes = {str(path): str(sha256) for path, sha256 in kept["hashes"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return

    def save(self) -> None:
        """Write the file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_suffix(".new")
        written.write_text(json.dumps({"folder": self._folder, "hashes": self.hashes}), encoding="utf-8")
        written.replace(self._file)


class Synchronizer:
    """Two code folders: `here`, of this machine, and `there`."""

    def __init__(
        self,
        here: Side,
        there: Side,
        base: Base,
        *,
        label: str,
        ignored: Callable[[Iterable[str]], frozenset[str]],
        say: Callable[[str], None],
    ) -> None:
        """Compare nothing yet.

        Args:
            here: folder of this machine.
            there: the other folder.
            base: what both last had in common.
            label: name of the other side, for the names of copies.
            ignored: those of some paths that git ignores here.
            say: prints a line about something that the user should know.
        """
        self._here, self._there, self._base = here, there, base
        self._label, self._ignored, self._say = label, ignored, say
        self._refused: set[str] = set()

    def run_once(self) -> int:
        """Make the folders equal; returns the number of files copied or deleted.

        Raises:
            PlatformError: one of the folders is too large, or has a name that cannot be copied; nothing was changed.
            ConnectionError: the other side does not answer; the next call continues.
        """
        here, there = self._here.listing(), self._there.listing()
        if self._base.hashes and not there.hashes:
            # A new session of the same name, or somebody deleted its folder: that deletes nothing here.
            self._base.hashes.clear()
        done = 0
        try:
            for step in self._steps(here, there):
                done += self._take(step, here, there)
        finally:
            self._base.save()
        return done

    def _steps(self, here: Listing, there: Listing) -> list[Step]:
        ignored = self._ignored(path for path in there.hashes if path not in here.hashes)

        def leaves_out(path: str) -> bool:
            return path in ignored or here.selection.leaves_out(path) or there.selection.leaves_out(path)

        return list(steps(self._base.hashes, here.hashes, there.hashes, leaves_out=leaves_out))

    def _take(self, step: Step, here: Listing, there: Listing) -> int:
        """Take a step; a file that changed meanwhile waits for the next call."""
        try:
            if step.act == "keep both":
                self._keep_both(step, here, there)
            elif step.act == "push":
                self._copy(step.path, self._here, self._there, replaces=step.there)
            elif step.act == "pull":
                self._copy(step.path, self._there, self._here, replaces=step.here)
            elif step.act == "delete here":
                assert step.here is not None, "a file that is deleted exists"
                self._here.delete(step.path, sha256=step.here)
                self._base.hashes.pop(step.path, None)
            elif step.act == "delete there":
                assert step.there is not None, "a file that is deleted exists"
                self._there.delete(step.path, sha256=step.there)
                self._base.hashes.pop(step.path, None)
            else:
                self._agree(step)
                return 0
        except ChangedError:
            return 0
        except PlatformError as error:
            if str(error) not in self._refused:
                self._refused.add(str(error))
                self._say(f"not synchronized: {error}")
            return 0
        if step.restores:
            side = "here" if step.act == "pull" else f"on {self._label}"
            self._say(f"{step.path}: deleted {side} and changed on the other side; it is kept")
        return 1

    def _copy(self, path: str, source: Side, target: Side, *, replaces: str | None) -> None:
        content = source.read(path)
        target.write(path, content, replaces=replaces)
        self._base.hashes[path] = content.sha256

    def _keep_both(self, step: Step, here: Listing, there: Listing) -> None:
        def taken(path: str) -> bool:
            return path in here.hashes or path in there.hashes or path in self._base.hashes

        copy = name_of_copy(step.path, label=self._label, taken=taken)
        theirs = self._there.read(step.path)
        self._here.write(copy, theirs, replaces=None)
        self._there.write(copy, theirs, replaces=None)
        self._base.hashes[copy] = theirs.sha256
        self._copy(step.path, self._here, self._there, replaces=theirs.sha256)
        self._say(f"{step.path} changed on both sides; the version of {self._label} is kept as {copy}")

    def _agree(self, step: Step) -> None:
        if step.here is None:
            self._base.hashes.pop(step.path, None)
        else:
            self._base.hashes[step.path] = step.here
