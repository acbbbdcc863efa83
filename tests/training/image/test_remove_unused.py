"""What the build of the trainer image removes, on small folders and on a copy of the real environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.engines.report_table import ran, skipped

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "training/image/remove_unused.py"
LIST = ROOT / "training/image/unused.txt"
SITE = Path(f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")


def remove(site: Path, listing: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-S", SCRIPT, site, listing], capture_output=True, text=True, check=False)


def listing(folder: Path, *patterns: str) -> Path:
    file = folder / "unused.txt"
    file.write_text("# a comment\n\n" + "".join(f"{pattern}\n" for pattern in patterns))
    return file


def write(site: Path, *names: str) -> None:
    for name in names:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("some bytes\n")


def test_what_a_pattern_matches_is_removed_a_whole_package_with_its_metadata(tmp_path: Path) -> None:
    site = tmp_path / "site"
    write(site, "a/core.py", "a/tests/x.py", "a/b/tests/y.py", "a/lib/static.a", "b/tests/kept.py")
    write(site, "c/core.py", "c-1.0.dist-info/METADATA", "cd-1.0.dist-info/METADATA")
    done = remove(site, listing(tmp_path, "a/**/tests", "a/lib/*.a", "c"))
    assert done.returncode == 0, done.stderr
    left = sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file())
    assert left == ["a/core.py", "b/tests/kept.py", "cd-1.0.dist-info/METADATA"]
    assert not (site / "c").exists()
    outdated = remove(site, listing(tmp_path, "a/jars", "absent/jars"))
    assert outdated.returncode == 1
    assert "a/jars: nothing in" in outdated.stderr
    assert "absent" not in outdated.stderr


def test_a_library_that_another_one_needs_is_not_removed_unnoticed(tmp_path: Path) -> None:
    """A program with a library beside it, which its RUNPATH names, as in torch's wheels."""
    compiler = shutil.which("cc")
    if compiler is None:
        skipped("C compiler", "no cc on PATH", "apt-get install gcc")
    ran("C compiler")
    site = tmp_path / "site"
    write(site, "a/lib/b.c", "a/a.c")
    (site / "a/lib/b.c").write_text("int b(void) { return 0; }\n")
    (site / "a/a.c").write_text("int b(void); int a(void) { return b(); }\n")
    for words in (
        ["-o", "a/lib/libb.so", "a/lib/b.c"],
        ["-o", "a/liba.so", "a/a.c", "-La/lib", "-lb", "-Wl,-rpath,$ORIGIN/lib"],
    ):
        subprocess.run([compiler, "-shared", "-fPIC", *words], cwd=site, check=True)
    done = remove(site, listing(tmp_path, "a/lib/*.so"))
    assert done.returncode == 1
    assert "a/liba.so needs libb.so, which was removed" in done.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's locked packages, hard-linked from this environment, without what the image lacks."""
    folder = tmp_path_factory.mktemp("environment")
    installed = Path(sys.prefix) / SITE
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements-image.lock").read_text(), flags=re.MULTILINE))
    for one in distributions(path=[str(installed)]):
        if re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower() in locked:
            for file in one.files or ():
                link(installed / file, folder / SITE / file)
                if file.suffix == ".py":  # compiling torch again takes half a minute
                    compiled = Path(cache_from_source(str(installed / file)))
                    link(compiled, folder / SITE / compiled.relative_to(installed))
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/python").symlink_to(Path(sys.executable).resolve())
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", folder)
    before = size(folder)
    done = remove(folder / SITE, LIST)
    assert done.returncode == 0, done.stderr
    assert size(folder) < before
    return folder


def link(source: Path, target: Path) -> None:
    """Hard-link a file of a distribution; not those outside site-packages, such as programs in `bin`."""
    if ".." in target.parts or not source.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:  # two distributions have a file of this name
        pass
    except OSError:
        shutil.copy(source, target)


def size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def run(environment: Path, *arguments: str, **variables: str) -> str:
    """Run the environment's Python; gives its output."""
    bare = {"PATH": os.environ["PATH"], "HOME": str(environment), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(
        [environment / "bin/python", *arguments], env=bare, cwd=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_removed_environment_has_what_a_job_imports_and_trains(environment: Path) -> None:
    names = "torch.distributed, ray.train, ray.tune, ray.data, mlflow.pytorch, optuna, sklearn.datasets, matplotlib"
    assert run(environment, "-c", f"import torch, {names}; print(torch.__file__)").startswith(str(environment))
    command = ["-m", "training", "train", "--launcher", "plain", "--num-workers", "1", "--epochs", "1", "--name", "one"]
    settings = ["--set", f"run.directory={environment / 'runs'}", "--set", "tracking.enabled=false"]
    run(environment, *command, *settings, PYTHONPATH=str(ROOT))
    assert list((environment / "runs/one/checkpoints").iterdir())


def test_libraries_that_are_loaded_by_name_are_there(environment: Path) -> None:
    """cuDNN, cuBLAS and NVRTC load parts of themselves by name, which `ldd` does not see."""
    packages = environment / SITE / "nvidia"
    if not packages.is_dir():
        skipped("CUDA build of torch", "this environment has another build", "make env without TORCH_VERSION")
    ran("CUDA build of torch")
    here = Path(sys.prefix) / SITE / "nvidia"
    for pattern in ("cudnn/lib/*.so*", "cu13/lib/libnvrtc*.so*", "cu13/lib/libcublas*.so*", "nccl/lib/*.so*"):
        names = {path.name for path in here.glob(pattern)}
        assert names
        assert {path.name for path in packages.glob(pattern)} == names
