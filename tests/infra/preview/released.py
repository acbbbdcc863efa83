"""What the stacks of the last release were made from, as the code of its own commit records it.

`graphs/released` has the stores, the cluster and the network of every environment; `commit` beside them names the commit. They stay
as they are however often the graphs are written anew. Once a release is made,

    .venv/bin/python -m tests.infra.preview.released v0.1.0

unpacks the files of that commit, lets its own program record its own environments with the packages of this checkout, and
writes the files anew.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from infra.spec.release_rules import ROOT
from tests.infra.preview.snapshot import GRAPHS, STATE, Snapshot, read, rendered, stores_of

RELEASED = GRAPHS / "released"
"""Folder of the files."""

# The earlier code may write out fewer types in full than are compared today.
_RECORD = """
import json, sys
from tests.infra.aws.graphs import ENVIRONMENTS, graph
from tests.infra.preview import snapshot
snapshot.STATE = dict.fromkeys([*snapshot.STATE, *sys.argv[2:]], "")
graphs = {name: snapshot.snapshot_of(graph(name)) for name in ENVIRONMENTS}
open(sys.argv[1], "w").write(json.dumps(graphs))
"""


def read_released(environment: str) -> Snapshot:
    """What the last release must not lose."""
    return read(RELEASED / f"{environment}.json")


def released_commit() -> str:
    """Hash of the commit of the last release."""
    return (RELEASED / "commit").read_text(encoding="utf-8").strip()


def full_hash(commit: str) -> str | None:
    """Hash of a commit, tag or branch; None if the repository does not have it, as after a shallow clone."""
    found = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    return found.stdout.decode().strip() or None


def record_at(commit: str) -> Mapping[str, Snapshot]:
    """The graphs of every environment that a commit of this repository ships, as its own code records them."""
    with tempfile.TemporaryDirectory(prefix="rtp-release-") as name:
        folder = Path(name)
        _git("archive", "--format=zip", f"--output={folder / 'source.zip'}", commit).check_returncode()
        shutil.unpack_archive(folder / "source.zip", folder / "source")
        command = [sys.executable, "-c", _RECORD, str(folder / "graphs.json"), *STATE]
        subprocess.run(command, cwd=folder / "source", check=True)
        return dict(read(folder / "graphs.json"))


def main(arguments: list[str] | None = None) -> int:
    """Make a commit the last release; 2 if the repository does not have it."""
    parser = argparse.ArgumentParser(prog="python -m tests.infra.preview.released", description=__doc__)
    parser.add_argument("commit", help="commit, tag or branch of the release")
    options = parser.parse_args(arguments)
    commit = full_hash(options.commit)
    if commit is None:
        parser.error(
            f"{options.commit}: no commit of this repository; fetch its whole history: git fetch --unshallow --tags"
        )
    for environment, graph in record_at(commit).items():
        (RELEASED / f"{environment}.json").write_text(rendered(stores_of(graph)), encoding="utf-8")
    (RELEASED / "commit").write_text(f"{commit}\n", encoding="utf-8")
    return 0


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
