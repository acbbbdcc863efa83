"""Keeps a code folder of this machine and its copy in a session equal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from infra.spec.cluster_names import CODE_PATH
from infra.spec.errors import PlatformError
from training.cluster.kubectl import Kubectl
from training.cluster.session_access import Session
from training.code.folder import LocalFolder
from training.code.remote import RemoteFolder
from training.code.rules import check_modules
from training.code.selection import describe_left_out, ignored_by_git, require_files, select
from training.code.synchronizer import Base, Synchronizer

STATES = Path(".local", "sessions")
"""Folder of what this machine keeps about sessions."""

_POLL_SECONDS = 2.0
_LONGEST_WAIT = 30.0
_END_SECONDS = 90.0


def check_code(folder: Path | None) -> None:
    """Refuse a code folder that cannot be copied, before anything starts; print what is left out of it.

    Raises:
        SettingsError: it does not exist, is empty, or has a file, link or module that cannot be copied.
        RefusedError: it is too large; names the largest files.
    """
    if folder is None:
        return
    selection = select(folder)
    require_files(folder, selection)
    check_modules(selection.files)
    print(f"code folder {folder}: {len(selection.files)} files, {selection.size / 2**10:,.0f} KiB")
    if selection.left_out:
        print(f"  left out: {describe_left_out(selection)}")


class CodeFolders:
    """The two folders, over connections that may break."""

    def __init__(
        self, folder: Path, *, state: Path, label: str, agent: Callable[[], Sequence[str]], say: Callable[[str], None]
    ) -> None:
        """Connect to nothing yet.

        Args:
            folder: the folder of this machine.
            state: file of what both folders last had in common.
            label: name of the session.
            agent: the command that starts an agent in the session; raises PlatformError if that is not possible now.
            say: prints a line.
        """
        self._folder, self._state, self._label = folder, state, label
        self._agent, self._say = agent, say
        self._remote: RemoteFolder | None = None
        self._here = LocalFolder(folder, select=select)

    def run_once(self) -> int:
        """Make the folders equal; returns the number of files copied or deleted.

        Raises:
            ConnectionError: the connection broke; the next call opens another.
            PlatformError: the session cannot be reached now, or a folder cannot be copied.
        """
        if self._remote is None:
            self._remote = RemoteFolder(self._agent())
        base = Base(self._state, folder=self._folder)
        ignored = partial(ignored_by_git, self._folder)
        both = Synchronizer(self._here, self._remote, base, label=self._label, ignored=ignored, say=self._say)
        try:
            return both.run_once()
        except ConnectionError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection."""
        if self._remote is not None:
            self._remote.__exit__(None, None, None)
            self._remote = None


def keep_equal(folders: CodeFolders, end: threading.Event, *, say: Callable[[str], None]) -> None:
    """Synchronize until the event, and once more then; says when it stops working, and when it works again."""
    wait, trouble = _POLL_SECONDS, ""
    while True:
        is_last = end.wait(wait)
        try:
            folders.run_once()
        except (ConnectionError, PlatformError) as error:
            if str(error) != trouble:
                say(f"code folder is not synchronized: {error}")
            trouble, wait = str(error), min(2 * wait, _LONGEST_WAIT)
        else:
            if trouble:
                say("code folder is synchronized again")
            trouble, wait = "", _POLL_SECONDS
        if is_last:
            return


@contextmanager
def synchronized(
    session: Session, kubectl: Kubectl, folder: Path | None, *, say: Callable[[str], None] = print
) -> Iterator[None]:
    """Copy a code folder to a session, and keep both equal inside of the `with`; None does nothing.

    Raises:
        PlatformError: the first copy failed.
    """
    if folder is None:
        yield
        return
    folders = _folders(session, kubectl, folder, say=say)
    end = threading.Event()
    thread = threading.Thread(target=partial(keep_equal, folders, end, say=say), daemon=True)
    try:
        _first(folders, session, folder, say=say)
        thread.start()
        yield
    finally:
        end.set()
        with suppress(RuntimeError):  # never started
            thread.join(_END_SECONDS)
        folders.close()


def copy_once(session: Session, kubectl: Kubectl, folder: Path) -> None:
    """Copy a code folder to a session, without keeping both equal; raises like `synchronized`."""
    folders = _folders(session, kubectl, folder, say=print)
    try:
        _first(folders, session, folder, say=print)
    finally:
        folders.close()


def _folders(session: Session, kubectl: Kubectl, folder: Path, *, say: Callable[[str], None]) -> CodeFolders:
    def agent() -> Sequence[str]:
        program = ("python", "-m", "training.code.agent", CODE_PATH)
        return kubectl.command("exec", "--stdin", session.pod("head"), "--container=ray-head", "--", *program)

    place = STATES / session.context.env / session.context.team.name / f"{session.name}.json"
    return CodeFolders(folder, state=place, label=session.name, agent=agent, say=say)


def _first(folders: CodeFolders, session: Session, folder: Path, *, say: Callable[[str], None]) -> None:
    try:
        count = folders.run_once()
    except ConnectionError as error:
        raise PlatformError(
            f"code folder {folder} cannot be copied to {session.name}: {error}", remedy="run the command again"
        ) from error
    say(f"code folder {folder} equals {CODE_PATH} of {session.name}: {count} files copied or deleted")
