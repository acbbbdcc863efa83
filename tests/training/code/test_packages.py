"""What a run's processes import: its code and its packages, with the real lock and environment, and wheels made by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from infra.spec.errors import RefusedError
from tests.infra.packages.wheels import use_only, wheel
from tests.processes import run_command
from tests.training.cli.command import ROOT
from tests.training.code.projects import write
from training.code import packages
from training.code.packages import packages_for, require_installed
from training.script.variables import NodePlace, environment_of


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A code folder; uv installs from the folder `wheels` beside it."""
    use_only(tmp_path / "wheels", monkeypatch)
    (tmp_path / "code").mkdir()
    return tmp_path / "code"


def require(code: Path, *lines: str) -> Path | None:
    """Write requirements.txt; gives the packages."""
    (code / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    return packages_for(code, root=code.with_name("overlays"))


def test_nothing_is_installed_for_code_without_requirements_or_for_what_the_environment_has(code: Path) -> None:
    assert packages_for(code, root=code.with_name("overlays")) is None
    assert require(code, "numpy>=2", "torch", "ray==2.60.0", "# timm") is None
    assert not code.with_name("overlays").exists()


def test_where_only_mlflows_client_is_installed_code_that_asks_for_mlflow_runs(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the trainer image, whose packages these are."""

    def version(name: str) -> str:
        if name == "mlflow-skinny":
            return "3.17.2"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    (code / "requirements.txt").write_text("mlflow>=3\n")
    require_installed(code)
    (code / "requirements.txt").write_text("mlflow<3\nflask\n")
    with pytest.raises(RefusedError, match=r"flask: not installed\n  mlflow<3: has 3\.17\.2"):
        require_installed(code)


PROGRAM = """
import subprocess, sys
from pathlib import Path
from training.code import packages
from training.code.import_path import on_import_path, use_code
folder, root = Path(sys.argv[1]), Path(sys.argv[2])
real = packages.packages_for
packages.packages_for = lambda code: real(code, root=root)
with on_import_path(folder):
    import greeter
del sys.modules["greeter"]
try:
    import greeter
except ImportError:
    print("gone after the block")
use_code(folder)
child = "import mine, greeter; print(mine.WHO, greeter.VERSION)"
subprocess.run([sys.executable, "-c", child], check=True)
import numpy
print(numpy.__file__)
"""


def test_code_and_its_packages_are_on_the_import_path_of_a_process_and_its_children(code: Path) -> None:
    wheel(code.with_name("wheels"), "greeter", "1.0")
    (code / "requirements.txt").write_text("greeter\n")
    (code / "mine.py").write_text("WHO = 'mine'\n")
    overlays = str(code.with_name("overlays"))
    said = run_command([sys.executable, "-c", PROGRAM, str(code), overlays]).stdout.splitlines()
    assert said[:2] == ["gone after the block", "mine 1.0"]
    assert not said[2].startswith(overlays)


def test_an_image_installs_nothing_and_names_what_it_lacks(code: Path) -> None:
    (code / "requirements.txt").write_text("numpy>=2\ntimm>=1\n")
    with pytest.raises(RefusedError) as refused:
        packages_for(code, lock=code / "none", root=code / "overlays")
    assert "  timm>=1: not installed" in str(refused.value).splitlines()
    assert "numpy" not in str(refused.value)
    assert "make image FROM=" in refused.value.remedy
    (code / "requirements.txt").write_text("numpy>=2\nray[train,tune]\n")
    require_installed(code)
    assert packages_for(code, lock=code / "none") is None


def test_a_command_gets_the_packages_which_are_installed_once(
    code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel(code.with_name("wheels"), "greeter", "1.0")
    found = require(code, "greeter")
    assert "packages: installing greeter into " in capsys.readouterr().err
    monkeypatch.setattr(subprocess, "run", None)
    assert require(code, "greeter") == found
    monkeypatch.setattr(packages, "packages_for", lambda _: found)
    place = NodePlace(rank=0, nodes=1, processes=1, cpus=1, master_address="127.0.0.1", master_port=1)
    environment = environment_of({"PATH": "/bin", "PYTHONPATH": "/first"}, place, output=code, code=code)
    assert environment["PYTHONPATH"].split(":") == ["/first", str(code), str(found)]
    assert environment["PATH"].split(":")[1:] == [f"{found}/bin", "/bin"]


COPIED = """
import multiprocessing, subprocess, sys
from pathlib import Path
from training.code.import_path import use_code

def where(_=None):
    import chosen_nets
    return chosen_nets.__file__

if __name__ == "__main__":
    use_code(Path(sys.argv[1]))
    print(where())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(*pool.map(where, [0]))
    print(subprocess.check_output([sys.executable, "-P", "-c", "import chosen_nets; print(chosen_nets.__file__)"], text=True))
"""


def test_a_rank_started_in_the_user_s_folder_imports_the_copy_and_so_do_its_children(tmp_path: Path) -> None:
    live = write(tmp_path / "live", {"chosen_nets.py": "", "program.py": COPIED})
    copy = write(tmp_path / "copy", {"chosen_nets.py": ""})
    program = [sys.executable, "-m", "program", str(copy)]
    printed = run_command(program, cwd=live, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert printed.stdout.split() == [str(copy / "chosen_nets.py")] * 3
