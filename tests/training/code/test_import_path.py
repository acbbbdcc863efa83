"""What a process imports once it uses a run's code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.training.cli.command import ROOT
from tests.training.code.projects import write

PROGRAM = """
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
    live = write(tmp_path / "live", {"chosen_nets.py": "", "program.py": PROGRAM})
    copy = write(tmp_path / "copy", {"chosen_nets.py": ""})
    printed = subprocess.run(
        [sys.executable, "-m", "program", str(copy)],
        cwd=live,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.split() == [str(copy / "chosen_nets.py")] * 3
