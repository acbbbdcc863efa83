"""The notebooks of the documentation, executed as a user does: top to bottom in a folder without runs, in the project's kernel."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.engines.jupyter import require_jupyterlab
from tests.engines.ports import free_port
from tests.engines.report_table import ran, skipped
from tests.makefile import ROOT
from training.errors import ExitStatus, PreflightError, SettingsError
from training.notebooks import SOURCE, copy_notebooks

pytestmark = pytest.mark.extended

SECONDS = 600
NOTEBOOKS = sorted(SOURCE.glob("*.ipynb"))


def read(name: str) -> Any:  # noqa: ANN401 - nbformat has no types
    """A notebook of the documentation."""
    return nbformat.read(SOURCE / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]


def execute(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, before: str = "", **values: str) -> Any:  # noqa: ANN401 - as above
    """The notebook after all its cells ran in a folder, with other values for names of its first code cell, and code before it."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read(name)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    for key, value in values.items():
        first.source, replaced = re.subn(rf"^{key} = .*$", f"{key} = {value!r}", first.source, flags=re.MULTILINE)
        assert replaced == 1, key
    first.source = before + first.source
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=where).execute()
    return notebook


def shown(notebook: Any, source: str) -> str:  # noqa: ANN401 - as above
    """What the one cell with this code shows: text, tables, and the types of pictures."""
    [cell] = [cell for cell in notebook.cells if cell.cell_type == "code" and source in cell.source]
    parts = [
        one.get("text") or "\n".join(f"{kind} {_text(kind, value)}" for kind, value in one.data.items())
        for one in cell.outputs
    ]
    return "\n".join(parts)


def _text(kind: str, value: str) -> str:
    return "" if kind.startswith("image/") else value


def assert_quiet(notebook: Any) -> None:  # noqa: ANN401 - as above
    """No cell has written a warning or an error."""
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    assert [one.text for one in outputs if one.get("name") == "stderr"] == []


SHOWN: dict[str, tuple[tuple[str, str], ...]] = {
    "results_of_a_run": (
        ("RunHistory.from_events", "digits: 210 steps, 11 evaluations"),
        *((plot, "image/png") for plot in ("validation = [", "barh", "stackplot", "load_exported")),
        ("last = [", "test"),
        ("history.checkpoints\n", "stall ms"),
        ("search_runs", "simple_cnn"),
    ),
    "ray_train_step_by_step": (
        ("samples_of", "64 samples, by 2 workers 32 + 32"),
        ("best_checkpoints]", "accuracy"),
        *((plot, "image/png") for plot in ("imshow", "axhline")),
    ),
    "results_of_a_search": (
        ("open_search(", "digits: done, 10 trials"),
        *((f'search.plot("{plot}")', "<svg") for plot in ("best", "curves", "parallel", "importance")),
        *((plot, "image/png") for plot in ("scatter", "axes.hist")),
        ("parentRunId", "t010"),
    ),
    "pbt": (
        ("search.trials.drop", "t004"),
        ('search.plot("lineage")', "<svg"),
        ("yscale", "image/png"),
        ("load_model", "parameters"),
    ),
    "deepspeed": (
        ("deepspeed=ds_contradicting", "train_batch_size=1000 contradicts loop.global_batch=64"),
        *((plot, "image/png") for plot in ("linewidth=4", "all whole")),
        ("describe()", "zero2, ms"),
    ),
}
"""What cells of a notebook show, each found by a part of its code; those of fsdp2 are in a test of its own."""


def test_git_has_neither_outputs_nor_counts_and_every_notebook_is_executed_here() -> None:
    for file in NOTEBOOKS:
        notebook = read(file.stem)
        nbformat.validate(notebook)
        assert notebook.metadata.kernelspec.name == "python3"
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.source for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert {*SHOWN, "fsdp2"} == {file.stem for file in NOTEBOOKS}


# Each trains or searches: a notebook that no test executes breaks unseen.
@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some are over 20 CPU seconds: a notebook is run as it is shipped, and each trains in processes of its own.
    if name == "deepspeed":
        if importlib.util.find_spec("deepspeed") is None:
            skipped("DeepSpeed", "not installed", "make env FOR=dev")
        ran("DeepSpeed")
    notebook = execute(name, tmp_path, monkeypatch)
    if name != "ray_train_step_by_step":
        assert_quiet(notebook)
    for source, text in SHOWN[name]:
        assert text in shown(notebook, source), source


def test_a_run_that_does_not_exist_is_named_in_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CellExecutionError, match=r"run digit: no such run under .local/runs"):
        execute("results_of_a_run", tmp_path, monkeypatch, RUN="digit")


def test_fsdp2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Over 20 CPU seconds: two strategies of several ranks are what the notebook compares.
    notebook = execute("fsdp2", tmp_path, monkeypatch)
    assert_quiet(notebook)
    assert "blocks.0" in shown(notebook, "units_of(model)}")
    for plot in ("linewidth=4", "barh"):
        assert "image/png" in shown(notebook, plot)
    total = dict(re.findall(r"^(\w+, rank \d) .* ([\d.]+)\s*$", shown(notebook, "barh"), flags=re.MULTILINE))
    assert 1.9 < float(total["ddp, rank 0"]) / float(total["fsdp2, rank 0"]) < 2.1
    equal = re.search(r"(\d+) of (\d+) tensors equal", shown(notebook, "load_weights(newest"))
    assert equal is not None
    assert equal[1] == equal[2] != "0"


def test_without_deepspeed_the_notebook_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The double of an environment without it is an import path on which it is not found."""
    hidden = "import importlib.util\nfind = importlib.util.find_spec\n"
    hidden += "importlib.util.find_spec = lambda name, *rest: None if name == 'deepspeed' else find(name, *rest)\n"
    with pytest.raises(
        CellExecutionError, match=r"DeepSpeed is not installed\. To install it, run: make env WITH=deepspeed"
    ):
        execute("deepspeed", tmp_path, monkeypatch, before=hidden)


def test_copies_stay_as_they_are_edited(tmp_path: Path) -> None:
    file = copy_notebooks("fsdp2", folder=tmp_path / "copies")
    assert {path.name for path in file.parent.iterdir()} == {path.name for path in NOTEBOOKS}
    file.write_text("edited", encoding="utf-8")
    assert copy_notebooks("fsdp2.ipynb", folder=tmp_path / "copies") == file
    assert file.read_text(encoding="utf-8") == "edited"
    assert copy_notebooks(folder=tmp_path / "copies") == tmp_path / "copies"


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="notebook fsdp: no such notebook"):
        copy_notebooks("fsdp", folder=tmp_path / "copies")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PreflightError, match="no notebooks"):
        copy_notebooks(source=tmp_path)
    (tmp_path / "copies").write_text("a file")
    with pytest.raises(PreflightError, match="cannot be copied"):
        copy_notebooks(folder=tmp_path / "copies")


def test_what_only_a_session_has_is_refused_on_this_machine(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "training", "notebook", "--gpus", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == ExitStatus.WRONG_INPUT
    assert refused.stderr.startswith("error: --gpus needs a cluster\n")
    assert list(tmp_path.iterdir()) == []


def test_the_command_opens_a_copy_in_jupyterlab(tmp_path: Path) -> None:
    require_jupyterlab()
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "BROWSER": "true",
        "JUPYTER_TOKEN": "t",
    }
    command = [sys.executable, "-m", "training", "notebook", "pbt", "--port", str(port)]
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/contents/pbt.ipynb", headers={"Authorization": "token t"}
    )
    with subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 120
            while True:
                with suppress(OSError), urllib.request.urlopen(request) as answer:  # noqa: S310 - our own server
                    assert b"Population-based training" in answer.read()
                    break
                assert time.monotonic() < deadline
                time.sleep(0.2)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
    assert (tmp_path / ".local" / "notebooks" / "pbt.ipynb").is_file()
