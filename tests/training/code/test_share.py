"""Runs that share the code that another folder keeps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.engines.small_disk import small_disk
from tests.training.code.projects import OWN, write
from training.code import kept
from training.code.archive import pack
from training.code.kept import RunCode


def code_of(search: Path, folder: Path) -> RunCode:
    """The code of a search, which keeps it."""
    search.mkdir()
    return kept.keep(search, pack(write(folder, OWN)))


def assert_stands_alone(run: Path, search: Path, code: RunCode) -> None:
    """The run has its code, also after the search is gone."""
    shutil.rmtree(search)
    assert kept.current_identity(run) == code.identity
    folder = kept.current_folder(run)
    assert folder is not None
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.py")} >= set(OWN)


def test_a_run_gets_the_newest_archive_without_another_copy_of_it(tmp_path: Path) -> None:
    search = tmp_path / "search"
    code = code_of(search, tmp_path / "mine")
    (run := search / "trials" / "t001").mkdir(parents=True)
    for _ in range(2):  # the second one resumes the run
        kept.share(code, of=search, run=run)
    name = kept.archive_name(code.identity)
    assert (run / name).samefile(search / name)
    write(tmp_path / "mine", {"more.py": "X = 1\n"})
    newer = kept.keep(search, pack(tmp_path / "mine"))
    kept.share(newer, of=search, run=run)
    assert json.loads((run / "code.json").read_text())["sha256"] == newer.identity.sha256 != code.identity.sha256
    assert (run / name).exists()
    assert_stands_alone(run.rename(tmp_path / "run"), search, newer)


def test_a_run_on_another_file_system_gets_a_copy(tmp_path: Path) -> None:
    search = tmp_path / "search"
    code = code_of(search, tmp_path / "mine")
    with small_disk(tmp_path / "disk", size="1m") as run:
        kept.share(code, of=search, run=run)
        assert_stands_alone(run, search, code)
