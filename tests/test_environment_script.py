"""`.make/environment` installs what a kind of work needs, keeps what others need, and is idempotent.

A script that records its arguments replaces uv, so these tests need no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-infra.lock", "requirements-dev.lock", "requirements-deepspeed.lock")
DEEPSPEED = "pip install --no-deps --no-build-isolation --require-hashes --requirements requirements-deepspeed.lock\n"

FAKE_UV = """#!/bin/sh
[ "$1" = cache ] && echo {notes}/cache && exit
case "$*" in *--dry-run*) [ -e {notes}/no-answer ] && exit 1 || exit 0 ;; esac
echo "$@" >>{notes}/asked
echo "$UV_DEFAULT_INDEX $UV_CACHE_DIR" >{notes}/variables
for argument; do
  case $argument in *.lock) cat "$argument" >>{notes}/installed ;; esac
done
"""


class Folder:
    """A project folder with small locks, a dummy interpreter, and the fake uv first on PATH."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes = path / "notes"
        (path / ".make").mkdir()
        shutil.copy(ROOT / ".make/environment", path / ".make/environment")
        for lock in LOCKS:
            (path / lock).write_text(f"numpy==1 \\\n    --hash=sha256:{lock}\n")
        self.notes.mkdir()
        self.program(path / ".venv/bin/python", "#!/bin/sh\n")
        self.program(path / "bin/uv", FAKE_UV.format(notes=self.notes))

    @staticmethod
    def program(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, kind: str, **variables: str) -> str:
        """Run the script; returns the calls of uv, empty if there were none."""
        environment = {**os.environ, "PATH": f"{self.path}/bin:{os.environ['PATH']}", **variables}
        asked = self.notes / "asked"
        asked.write_text("")
        subprocess.run([".make/environment", kind], cwd=self.path, env=environment, check=True, capture_output=True)
        return asked.read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


NEWER = "numpy==2 \\\n    --hash=sha256:0\n"


def test_an_environment_is_installed_with_hashes_and_again_once_its_lock_has_changed(folder: Folder) -> None:
    assert folder.run("train") == "pip sync --require-hashes requirements.lock\n"
    assert folder.run("train") == ""
    (folder.path / "requirements.lock").write_text(NEWER)
    assert "requirements.lock" in folder.run("train")


def test_the_contributors_environment_serves_all_work_and_follows_each_of_its_locks(folder: Folder) -> None:
    assert folder.run("dev") == f"pip sync --require-hashes requirements-dev.lock\n{DEEPSPEED}"
    assert [folder.run(kind) for kind in ("train", "infra", "deepspeed")] == ["", "", ""]
    for lock in ("requirements-dev.lock", "requirements-deepspeed.lock"):
        (folder.path / lock).write_text(NEWER)
        assert lock in folder.run("dev")
    (folder.path / "requirements.lock").write_text(NEWER)
    assert " requirements-dev.lock\n" in folder.run("train")


def test_an_environment_may_serve_training_and_infrastructure(folder: Folder) -> None:
    folder.run("train")
    assert folder.run("infra").endswith(" requirements-infra.lock requirements.lock\n")
    assert folder.run("train") == ""


def test_deepspeed_is_built_after_the_rest_and_kept_when_a_lock_changes(folder: Folder) -> None:
    assert folder.run("train")
    assert folder.run("deepspeed") == f"pip sync --require-hashes requirements.lock\n{DEEPSPEED}"
    assert folder.run("train") == ""
    (folder.path / "requirements.lock").write_text(NEWER)
    assert folder.run("train") == f"pip sync --require-hashes requirements.lock\n{DEEPSPEED}"


def test_another_build_of_torch_replaces_the_locked_one(folder: Folder) -> None:
    names = ("torch", "triton", "nvidia-nccl", "cuda-toolkit", "torchmetrics", "numpy")
    text = "".join(f"{name}==1 \\\n    --hash=sha256:{name}\n" for name in names)
    (folder.path / "requirements.lock").write_text(text)
    asked = folder.run("train", TORCH_VERSION="2+cpu", TORCH_INDEX="file:///index")
    assert asked.endswith("pip install --no-deps --index-url file:///index torch==2+cpu\n")
    installed = (folder.notes / "installed").read_text()
    assert [line.partition("==")[0] for line in installed.splitlines()[::2]] == ["torchmetrics", "numpy"]


@pytest.mark.skipif(any(Path("/dev").glob("nvidia*")), reason="the environment of a machine with a GPU has CUDA")
def test_without_a_gpu_the_cpu_build_is_installed_with_hashes_until_cuda_is_asked_for(folder: Folder) -> None:
    (folder.path / "requirements.lock").write_text(
        "torch==1 \\\n    --hash=sha256:cuda\nnumpy==1 \\\n    --hash=sha256:0\n"
    )
    (folder.path / "requirements-cpu.lock").write_text("torch==1+cpu \\\n    --hash=sha256:cpu\n")
    asked = folder.run("train")
    assert asked.startswith("pip sync --require-hashes --torch-backend cpu ")
    assert asked.endswith("/requirements.lock requirements-cpu.lock\n")
    assert "--hash=sha256:cuda" not in (folder.notes / "installed").read_text()
    assert folder.run("train") == folder.run("train", GPU="0") == ""
    assert folder.run("train", GPU="1") == "pip uninstall torch\npip sync --require-hashes requirements.lock\n"
    assert folder.run("train") == ""


@pytest.mark.skipif(any(Path("/dev").glob("nvidia*")), reason="the environment of a machine with a GPU has CUDA")
def test_cuda_is_installed_where_the_index_of_the_cpu_build_does_not_answer_or_cuda_is_asked_for(
    folder: Folder,
) -> None:
    (folder.path / "requirements-cpu.lock").write_text("torch==1+cpu \\\n    --hash=sha256:cpu\n")
    (folder.notes / "no-answer").touch()
    assert folder.run("train") == "pip sync --require-hashes requirements.lock\n"
    (folder.notes / "no-answer").unlink()
    (folder.path / ".venv/.locks").unlink()
    assert folder.run("train", GPU="1") == "pip sync --require-hashes requirements.lock\n"


def test_the_choice_of_torch_is_kept_when_a_lock_changes(folder: Folder) -> None:
    folder.run("train", TORCH_VERSION="2+cpu")
    assert folder.run("train") == ""
    (folder.path / "requirements.lock").write_text(NEWER)
    assert folder.run("train").endswith("torch==2+cpu\n")


def test_an_unknown_kind_of_work_is_refused(folder: Folder) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        folder.run("tests")
    assert b"usage: .make/environment train|dev|infra|deepspeed" in caught.value.stderr


def test_the_script_and_the_workflow_take_the_pythons_of_the_project(folder: Folder) -> None:
    supported = SpecifierSet(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    )
    minors = [minor for minor in range(30) if f"3.{minor}.1" in supported]
    script = (ROOT / ".make/environment").read_text(encoding="utf-8")
    assert f"readonly oldest={minors[0]} newest={minors[-1]}\n" in script
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    [matrix] = [job["strategy"]["matrix"] for job in workflow["jobs"].values() if "strategy" in job]
    assert matrix["python"] == [f"3.{minor}" for minor in minors]


INTERPRETER = """#!/bin/sh
case "$*" in
  *version_info*) echo {version} ;; *ensurepip*) exit {lacks_venv} ;; --version) echo Python {version} ;;
  "-m venv"*) echo "$@" >notes/venv; mkdir -p .venv/bin; printf '#!/bin/sh\\n' >.venv/bin/python; chmod +x .venv/bin/python ;;
  *) exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("version", "lacks_venv", "said"),
    [("3.10", 0, "other is Python 3.10\n"), ("3.15", 0, "other is Python 3.15\n"), ("3.13", 1, "python3.13-venv\n")],
)
def test_a_python_that_does_not_serve_is_named_with_the_ones_that_do(
    folder: Folder, version: str, lacks_venv: int, said: str
) -> None:
    (folder.path / "bin/uv").unlink()
    shutil.rmtree(folder.path / ".venv")
    other = folder.path / "bin/other"
    folder.program(other, INTERPRETER.format(version=version, lacks_venv=lacks_venv))
    search = f"{folder.path}/bin:/usr/bin:/bin"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        folder.run("train", PYTHON="other", PATH=search)
    assert caught.value.returncode == 3
    text = caught.value.stderr.decode()
    assert said in text
    assert "no Python 3.11 to 3.14 with the venv module found at other\n" in text
    assert not (folder.path / ".venv").exists()


@pytest.mark.parametrize("left", ["no pip", "unfinished"])
def test_what_an_interrupted_command_has_left_is_made_anew(folder: Folder, left: str) -> None:
    assert folder.run("train")
    (folder.path / ".venv/.locks").unlink()
    if left == "unfinished":  # with another Python
        (folder.path / ".local/environment.unfinished").touch()
    else:
        folder.program(folder.path / ".venv/bin/python", "#!/bin/sh\nexit 1\n")
    folder.program(folder.path / "bin/other", INTERPRETER.format(version="3.12", lacks_venv=0))
    assert folder.run("train", PYTHON="other") == "pip sync --require-hashes requirements.lock\n"
    assert (folder.notes / "venv").read_text() == "-m venv --clear .venv\n"
    assert folder.run("train") == ""


def test_an_installation_that_fails_is_unfinished(folder: Folder) -> None:
    folder.program(folder.path / "bin/uv", "#!/bin/sh\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        folder.run("train")
    assert caught.value.returncode == 3
    assert (folder.path / ".local/environment.unfinished").exists()


def test_uv_asks_the_index_that_pip_is_told(folder: Folder) -> None:
    folder.run("train", PIP_INDEX_URL="https://me@wheels.example/simple", UV_DEFAULT_INDEX="")
    assert (folder.notes / "variables").read_text().split() == ["https://me@wheels.example/simple"]


DF = """#!/bin/sh
case $3 in {notes}*) free={cache} ;; *) free={here} ;; esac
printf "Avail\\n %s\\n" $free
"""


def test_a_disk_that_is_too_small_is_told_before_a_download_and_a_small_home_is_not_used(folder: Folder) -> None:
    folder.program(folder.path / "bin/df", DF.format(notes=folder.notes, cache=100, here=100))
    with pytest.raises(subprocess.CalledProcessError) as caught:
        folder.run("train")
    assert caught.value.returncode == 3
    assert f"{folder.path} has 100 MB free, and an environment for train takes 6800 MB" in caught.value.stderr.decode()
    assert (folder.notes / "asked").read_text() == ""
    folder.program(folder.path / "bin/df", DF.format(notes=folder.notes, cache=100, here=9000))
    folder.run("train")
    assert (folder.notes / "variables").read_text().split()[-1] == f"{folder.path}/.local/cache/uv"


def test_an_environment_with_another_python_is_not_replaced_unasked(folder: Folder) -> None:
    folder.program(folder.path / ".venv/bin/python", INTERPRETER.format(version="3.11", lacks_venv=0))
    folder.program(folder.path / "bin/other", INTERPRETER.format(version="3.13", lacks_venv=0))
    with pytest.raises(subprocess.CalledProcessError) as caught:
        folder.run("train", PYTHON="other")
    assert caught.value.returncode == 3
    assert ".venv has Python 3.11, and PYTHON=other is 3.13" in caught.value.stderr.decode()
