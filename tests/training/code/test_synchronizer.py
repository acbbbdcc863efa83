"""Two real folders, one behind a real agent process, as behind `kubectl exec`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from infra.spec.errors import PlatformError, RefusedError
from tests.training.code.test_selection import repository
from training.code.folder import ChangedError, Content, LocalFolder
from training.code.remote import RemoteFolder
from training.code.selection import ignored_by_git, select
from training.code.synchronizer import Base, Synchronizer


def agent(folder: Path) -> list[str]:
    """The command of an agent."""
    return [sys.executable, "-m", "training.code.agent", str(folder)]


@dataclass
class Pair:
    """Two folders that are synchronized.

    Attributes:
        here: the folder of this machine.
        there: the folder of the session.
        remote: the connection to it.
        state: file of the common state.
        said: what the user was told.
    """

    here: Path
    there: Path
    remote: RemoteFolder
    state: Path
    said: list[str] = field(default_factory=list)

    def run_once(self) -> int:
        """Synchronize, as a new command would."""
        local = LocalFolder(self.here, select=select)
        ignored = partial(ignored_by_git, self.here)
        base = Base(self.state, folder=self.here)
        return Synchronizer(local, self.remote, base, label="notes", ignored=ignored, say=self.said.append).run_once()

    def both(self, path: str) -> tuple[str | None, str | None]:
        """The texts of a file here and there."""
        found = [folder / path for folder in (self.here, self.there)]
        here, there = (one.read_text() if one.exists() else None for one in found)
        return here, there


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A folder with two files, and an empty one."""
    here, there = repository(tmp_path / "here", "*.log\n"), tmp_path / "there" / "code"
    (here / "sub").mkdir()
    (here / "a.py").write_text("a = 1\n")
    (here / "sub" / "b.py").write_text("b = 1\n")
    (here / ".gitignore").chmod(0o644)
    with RemoteFolder(agent(there)) as remote:
        yield Pair(here, there, remote, tmp_path / "state.json")


def test_a_folder_is_copied_with_modes_and_then_nothing_is_left_to_do(pair: Pair) -> None:
    (pair.here / "run.sh").write_text("true\n")
    (pair.here / "run.sh").chmod(0o755)
    assert pair.run_once() == 4
    assert pair.both("sub/b.py") == ("b = 1\n", "b = 1\n")
    assert (pair.there / "run.sh").stat().st_mode & 0o111
    assert not (pair.there / "a.py").stat().st_mode & 0o111
    assert not (pair.there / ".git").exists()
    assert pair.run_once() == 0
    assert pair.said == []


def test_changes_and_deletions_go_both_ways(pair: Pair) -> None:
    pair.run_once()
    (pair.here / "a.py").write_text("a = 2\n")
    (pair.there / "sub" / "b.py").unlink()
    (pair.there / "new" / "deep").mkdir(parents=True)
    (pair.there / "new" / "deep" / "c.ipynb").write_text("{}")
    assert pair.run_once() == 3
    assert pair.both("a.py") == ("a = 2\n", "a = 2\n")
    assert pair.both("new/deep/c.ipynb") == ("{}", "{}")
    assert not (pair.here / "sub").exists()
    (pair.here / "a.py").unlink()
    assert pair.run_once() == 1
    assert pair.both("a.py") == (None, None)


def test_a_file_that_changed_on_both_sides_is_kept_twice_and_said_so(pair: Pair) -> None:
    pair.run_once()
    (pair.here / "a.py").write_text("here\n")
    (pair.there / "a.py").write_text("there\n")
    pair.run_once()
    assert pair.both("a.py") == ("here\n", "here\n")
    assert pair.both("a.conflict-notes.py") == ("there\n", "there\n")
    assert pair.said == ["a.py changed on both sides; the version of notes is kept as a.conflict-notes.py"]
    assert pair.run_once() == 0


def test_a_changed_file_survives_its_deletion_and_an_emptied_session_deletes_nothing(pair: Pair) -> None:
    pair.run_once()
    (pair.here / "a.py").unlink()
    (pair.there / "a.py").write_text("kept\n")
    pair.run_once()
    assert pair.both("a.py") == ("kept\n", "kept\n")
    assert pair.said == ["a.py: deleted here and changed on the other side; it is kept"]
    for path in ("a.py", "sub/b.py", ".gitignore"):
        (pair.there / path).unlink()
    assert pair.run_once() == 3
    assert pair.both("a.py") == ("kept\n", "kept\n")


def test_what_git_ignores_here_links_and_odd_names_stay_on_the_session(pair: Pair) -> None:
    pair.run_once()
    (pair.there / "out.log").write_text("long")
    (pair.there / ".env").write_text("TOKEN=x")
    (pair.there / "data").symlink_to("/etc")
    (pair.there / "a\nb").write_text("odd")
    (pair.here / "mine.log").write_text("mine")
    assert pair.run_once() == 0
    assert pair.both("out.log") == (None, "long")
    assert pair.both(".env") == (None, "TOKEN=x")
    assert pair.both("mine.log") == ("mine", None)
    assert sorted(one.name for one in pair.here.iterdir()) == [".git", ".gitignore", "a.py", "mine.log", "sub"]


def test_a_session_folder_that_grew_too_large_is_named_and_nothing_changes(pair: Pair) -> None:
    pair.run_once()
    with (pair.there / "checkpoint.pt").open("wb") as opened:
        opened.truncate(2**31)
    (pair.there / "a.py").write_text("there\n")
    with pytest.raises(PlatformError, match=r"2048\.0 MiB checkpoint\.pt"):
        pair.run_once()
    assert pair.both("a.py") == ("a = 1\n", "there\n")
    with pytest.raises(RefusedError, match=r"a\.py"):  # and so is one here
        LocalFolder(pair.here, select=partial(select, limit=9)).listing()


def test_a_file_in_the_way_of_a_folder_is_said_once_and_holds_nothing_else_up(pair: Pair) -> None:
    pair.run_once()
    (pair.here / "x").mkdir()
    (pair.here / "x" / "y.py").write_text("y\n")
    (pair.there / "x").mkdir()
    (pair.there / "x" / "y.py").mkdir()
    (pair.here / "z.py").write_text("z\n")
    pair.run_once()
    assert pair.both("z.py") == ("z\n", "z\n")
    assert any("x/y.py cannot be written" in line or "x/y.py cannot be read" in line for line in pair.said)


def test_an_agent_that_is_gone_breaks_the_connection_with_its_last_words() -> None:
    for program, seconds, said in (
        ("import sys; sys.exit('error: unable to upgrade connection')", 60, "unable to upgrade connection"),
        ("print('hello')", 60, "hello"),
        ("import sys; sys.stdin.read()", 0.2, r"did not answer for 0\.2 s"),
    ):
        with (
            RemoteFolder([sys.executable, "-c", program], seconds=seconds) as remote,
            pytest.raises(ConnectionError, match=said),
        ):
            remote.listing()


def test_an_agent_writes_inside_its_folder_and_over_nothing_unseen(pair: Pair, tmp_path: Path) -> None:
    pair.run_once()
    (tmp_path / "secret").write_text("secret")
    (pair.there / "out").symlink_to(tmp_path)
    (pair.there / "link").symlink_to(tmp_path / "secret")
    content = Content(data=b"x", is_executable=False)
    for path in ("../secret", "/etc/passwd", "out/secret", "link", "a\n"):
        with pytest.raises(PlatformError):
            pair.remote.read(path)
        with pytest.raises(PlatformError):
            pair.remote.write(path, content, replaces=None)
        with pytest.raises(PlatformError):
            pair.remote.delete(path, sha256=content.sha256)
    assert (tmp_path / "secret").read_text() == "secret"
    # It does not replace what the writer has not seen either.
    with pytest.raises(ChangedError):
        pair.remote.write("a.py", content, replaces=None)
    with pytest.raises(ChangedError):
        pair.remote.delete("a.py", sha256=content.sha256)
    assert pair.both("a.py") == ("a = 1\n", "a = 1\n")
    assert [one.name for one in pair.there.rglob("*.rtp-part")] == []


def test_a_large_file_crosses_the_pipe_unchanged(pair: Pair) -> None:
    data = bytes(range(256)) * 40_000
    (pair.here / "data.bin").write_bytes(data)
    pair.run_once()
    assert (pair.there / "data.bin").read_bytes() == data
    (pair.there / "data.bin").write_bytes(data + b"more")
    pair.run_once()
    assert (pair.here / "data.bin").read_bytes() == data + b"more"


def test_a_state_of_another_folder_counts_as_none(pair: Pair, tmp_path: Path) -> None:
    pair.run_once()
    other = tmp_path / "other"
    other.mkdir()
    assert Base(pair.state, folder=other).hashes == {}
    assert len(Base(pair.state, folder=pair.here).hashes) == 3
    pair.state.write_text("{")
    assert Base(pair.state, folder=pair.here).hashes == {}
