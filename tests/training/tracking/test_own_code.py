"""What MLflow records of a run's own code, and the registration of a model that is made by it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.processes import run_command
from tests.training.code.projects import committed, git, write
from tests.training.tracking.recorded import RecordedRun, settings
from training.code import kept
from training.code.archive import pack, read_archive
from training.code.import_path import on_import_path
from training.errors import ExitStatus
from training.tracking import delivery
from training.tracking.registration import ModelRegistration
from training.tracking.state import TrackingState
from training.tracking.sync import sync

NETS = """
from torch import nn

from own_layers.heads import Head


def make(spec):
    return nn.Sequential(nn.Flatten(), Head(64, spec.outputs))
"""

HEADS = """
from torch import nn


class Head(nn.Linear):
    def forward(self, inputs):
        logits = super().forward(inputs)
        return logits if float(inputs.sum()) > 0 else -logits
"""

LOAD = """
import sys
import mlflow, torch
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pytorch.load_model(sys.argv[2])
assert not any("training" in name.split(".") for name in sys.modules), "the trainer was imported"
print(tuple(model(torch.ones(3, 1, 8, 8)).shape))
"""


def project(folder: Path) -> Path:
    """A code folder with a model that torch.export cannot export."""
    return committed(folder, {"own_nets.py": NETS, "own_layers/__init__.py": "", "own_layers/heads.py": HEADS})


def recorded(folder: Path, uri: str, code: Path) -> RecordedRun:
    """A run that was trained with this code and is finished."""
    run = RecordedRun(settings(folder, uri, model={"name": "own_nets:make"}))
    own = kept.keep(run.directory, pack(code))
    kept.use(run.directory, own)
    run.start(code=own)
    with on_import_path(own.folder):
        run.end()
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    return run


def run_id(run: RecordedRun) -> str:
    state = TrackingState.load(run.directory)
    assert state is not None
    return state.run_id


def artifacts(client: MlflowClient, run: RecordedRun) -> set[str]:
    return {file.path for file in client.list_artifacts(run_id(run), "code")}


@pytest.fixture
def in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real registration, which must find the code by itself."""
    monkeypatch.setattr(delivery, "ModelRegistration", ModelRegistration)


@pytest.mark.extended
@pytest.mark.usefixtures("in_a_process")
def test_a_model_of_one_s_own_is_registered_and_loads_without_the_code(tmp_path: Path, uri: str) -> None:
    code = project(tmp_path / "mine")
    run = recorded(tmp_path / "runs", uri, code)
    shutil.rmtree(code)
    assert sync([run.directory]) == ExitStatus.DONE
    client = MlflowClient(tracking_uri=uri)
    name = "own_nets.make-digits"
    version = client.get_model_version(name, "1")
    identity = kept.current_identity(run.directory)
    assert identity is not None
    assert version.tags["code.sha256"] == identity.sha256
    assert (version.tags["code.revision"], version.tags["code.dirty"]) == (identity.revision, "false")
    shutil.rmtree(run.directory / "code")
    loaded = run_command([sys.executable, "-c", LOAD, uri, f"models:/{name}/1"], cwd=tmp_path)
    assert loaded.stdout.strip() == "(3, 10)", loaded.stderr


def test_each_code_of_a_run_is_logged_once_and_tags_are_of_the_newest(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = project(tmp_path / "mine")
    run = RecordedRun(settings(tmp_path / "runs", uri))
    first = kept.keep(run.directory, pack(code))
    run.start(code=first)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError("the artifact store is down")

    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "log_artifact", refuse)
        assert sync([run.directory]) == ExitStatus.FAILED
    assert sync([run.directory]) == ExitStatus.DONE
    client = MlflowClient(tracking_uri=uri)
    archive = f"code/{first.identity.short}.tar.gz"
    assert artifacts(client, run) == {archive, f"code/{first.identity.short}.json"}
    downloaded = read_archive(Path(client.download_artifacts(run_id(run), archive)))
    assert downloaded.identity.sha256 == first.identity.sha256
    tags = client.get_run(run_id(run)).data.tags
    assert tags["code.sha256"] == first.identity.sha256
    assert (tags["code.revision"], tags["code.dirty"]) == (first.identity.revision, "false")

    write(code, {"own_layers/heads.py": f"{HEADS}# changed\n"})
    second = kept.keep(run.directory, pack(code))
    run.start(at_step=20, code=second)
    run.start(at_step=40, code=second)
    assert sync([run.directory]) == ExitStatus.DONE
    assert {path for path in artifacts(client, run) if path.endswith(".gz")} == {
        archive,
        f"code/{second.identity.short}.tar.gz",
    }
    tags = client.get_run(run_id(run)).data.tags
    assert (tags["code.sha256"], tags["code.dirty"]) == (second.identity.sha256, "true")

    shutil.rmtree(code / ".git")
    run.start(at_step=60, code=kept.keep(run.directory, pack(code)))
    assert sync([run.directory]) == ExitStatus.DONE
    tags = client.get_run(run_id(run)).data.tags
    assert {key for key in tags if key.startswith("code.")} == {"code.sha256"}, "tags of earlier code do not stay"


@pytest.mark.extended
@pytest.mark.usefixtures("in_a_process")
def test_code_that_no_longer_builds_its_model_is_named(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = project(tmp_path / "mine")
    run = recorded(tmp_path / "runs", uri, code)
    write(code, {"own_layers/heads.py": "raise RuntimeError('not today')\n"})
    git(code, "commit", "-am", "break it")
    kept.use(run.directory, kept.keep(run.directory, pack(code)))
    assert sync([run.directory]) == ExitStatus.FAILED
    said = capsys.readouterr().out
    assert "not today" in said
    assert 'own_nets.py", line' in said
    assert "training/tracking" not in said
    assert MlflowClient(tracking_uri=uri).get_run(run_id(run)).info.status == "FINISHED"
