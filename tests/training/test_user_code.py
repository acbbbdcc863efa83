"""Tracebacks as a user reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.code.projects import write
from training.code.import_path import on_import_path
from training.factories import import_factory
from training.user_code import named_at_source, user_traceback


def below_this_file(error: BaseException) -> BaseException:
    """The error without the frame of the test, which is not of the platform's packages either."""
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


def test_an_error_of_an_import_begins_in_the_user_s_module(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", {"faulty_nets.py": "\nimport no_such_package\n"})
    with on_import_path(folder), pytest.raises(ImportError) as caught:
        import_factory("faulty_nets:make", setting="model.name")
    lines = user_traceback(below_this_file(caught.value)).splitlines()
    assert lines[1] == f'  File "{folder / "faulty_nets.py"}", line 2, in <module>'
    assert "No module named 'no_such_package'" in lines[-1]


def test_a_syntax_error_in_a_module_that_another_one_imports_is_in_its_place(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", {"outer_nets.py": "import inner_nets\n", "inner_nets.py": "def f(:\n"})
    with on_import_path(folder), pytest.raises(SyntaxError) as caught:
        import_factory("outer_nets:make", setting="model.name")
    trace = user_traceback(below_this_file(caught.value))
    assert "outer_nets.py" in trace.splitlines()[1]
    assert 'inner_nets.py", line 1' in trace
    assert "/training/" not in trace


def test_paths_of_the_copy_become_those_of_the_folder_that_the_user_edits(tmp_path: Path) -> None:
    text = f'File "{tmp_path}/run/code/abc/nets.py", line 1'
    (tmp_path / "mine").mkdir()
    folder = tmp_path / "run" / "code" / "abc"
    assert named_at_source(text, folder=folder, source=tmp_path / "mine") == f'File "{tmp_path}/mine/nets.py", line 1'
    assert named_at_source(text, folder=folder, source=tmp_path / "gone") == text
    assert named_at_source(text, folder=folder, source=None) == text
