"""The notebook of a search with a model of one's own: executed in a real kernel, and opened in a real JupyterLab."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.distribution import RAY
from tests.engines.jupyter import require_jupyterlab
from tests.engines.ports import free_port
from tests.tune.sample_search import SampleSearch
from tests.tune.search_driver import run_search, search_of
from training.errors import ExitStatus
from training.export import weights_sha256
from tune.analysis import open_search
from tune.cli import main
from tune.history import SearchHistory
from tune.notebook import write_notebook

pytestmark = pytest.mark.xdist_group(RAY)

ROOT = Path(__file__).resolve().parents[2]
OWN = """
from torch import nn


def make(spec, width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, spec.outputs))
"""


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of three trials with a model of one's own."""
    folder = tmp_path_factory.mktemp("searches")
    code = folder / "own"
    code.mkdir()
    (code / "own_model.py").write_text(OWN, encoding="utf-8")
    space = {"model.options.width": {"choice": [8, 16, 32]}, "optimizer.learning_rate": 0.01}
    model = {"model": {"name": "own_model:make"}}
    settings = search_of(space=space, epochs=2, shared=model, algorithm="grid")
    run_search(folder, settings, code=code)
    shutil.rmtree(code)  # the search has its own copy
    return folder / "s"


def read(file: Path) -> Any:  # noqa: ANN401 - nbformat has no types
    """A notebook."""
    return nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]


def outputs(notebook: Any, source: str) -> str:  # noqa: ANN401 - nbformat has no types
    """What the cell with this code shows."""
    [cell] = [cell for cell in notebook.cells if cell.cell_type == "code" and source in cell.source]
    return "".join(str(one.get("data", one.get("text", ""))) for one in cell.outputs)


@pytest.mark.extended
def test_every_cell_runs_in_the_folder_of_a_finished_search(search: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read(write_notebook(search))
    assert [cell for cell in notebook.cells if cell.get("outputs")] == []
    NotebookClient(
        notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(search)}}
    ).execute()
    shown = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    assert [one for one in shown if one.get("name") == "stderr"] == []
    best = SearchHistory.read(search).ranked()[0].id
    assert f"s: done, 3 trials, best {best}" in outputs(notebook, "open_search(")
    assert f"NAME=s-{best} CODE=" in outputs(notebook, "search.train_command")
    for plot in ("best", "curves", "parallel", "cost"):
        assert "<svg" in outputs(notebook, f'search.plot("{plot}")')
    assert "needs at least 10 trials" in outputs(notebook, 'search.plot("importance")')
    assert "image/png" in outputs(notebook, ".plot(ylabel")
    assert "predicted" in outputs(notebook, "load_model")


def test_the_model_has_the_weights_of_the_trial(search: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a trial which has not trained to its end: the double of one is a trial without its final weights."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    opened = open_search(search)
    ended = SearchHistory.read(search).trials["t002"].ended
    assert ended is not None
    assert weights_sha256(opened.load_model("t002")) == ended.weights_sha256
    shutil.move(search / "trials/t002/model", search / "model of t002")
    assert weights_sha256(opened.load_model("t002")) == ended.weights_sha256
    assert opened.settings("t002").model.options == {"width": 16}


def test_the_notebook_of_a_search_stays_as_its_user_edits_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = SampleSearch(trials=2).write(tmp_path / "first") / "search.ipynb"
    command = ["notebook", "first", "--root", str(tmp_path), "--write-only"]
    file.symlink_to(tmp_path / "missing/file")  # refused to root too, which ignores permissions
    assert main(command) == ExitStatus.REFUSED
    assert "first/search.ipynb: No such file or directory" in capsys.readouterr().err
    file.unlink()
    assert main(command) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert read(file).metadata.kernelspec.name == "python3"
    file.write_text("edited", encoding="utf-8")
    assert main(command) == 0
    assert file.read_text(encoding="utf-8") == "edited"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of the API of the JupyterLab that the command starts."""
    require_jupyterlab()
    SampleSearch(trials=2).write(tmp_path / ".local/searches/first")
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "BROWSER": "true",
        "JUPYTER_TOKEN": "t",
    }
    words = ["notebook", "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, "-m", "tune", *words], cwd=tmp_path, env=environment, start_new_session=True
    ) as process:
        yield f"http://127.0.0.1:{port}/api"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def test_jupyterlab_opens_the_notebook(server: str) -> None:
    request = urllib.request.Request(f"{server}/contents/search.ipynb", headers={"Authorization": "token t"})  # noqa: S310
    deadline = time.monotonic() + 120
    while True:
        with suppress(OSError), urllib.request.urlopen(request) as answer:  # noqa: S310 - our own server
            assert "open_search" in str(json.load(answer)["content"])
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)
