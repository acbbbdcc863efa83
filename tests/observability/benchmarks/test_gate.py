"""The gate's command on result files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from observability.benchmarks.gate.__main__ import main
from observability.benchmarks.gate.history import BASELINE

_NAME = "step time"


class Folder:
    """A folder of result files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._generator = np.random.default_rng(5)
        self._files = 0

    def add(self, level: float, *, rounds: int = 6, cores: int = 2) -> None:
        """A benchmark run whose step takes `level` times as long as the other side's."""
        self._files += 1
        ours = [level * float(np.exp(self._generator.normal(0, 0.01))) for _ in range(rounds)]
        comparison = {"name": _NAME, "unit": "s", "ours": ours, "theirs": [1.0] * rounds, "goal": 1.03}
        record = {
            "machine": {"cpu": "EPYC", "cores": cores},
            "comparisons": [{**comparison, "higher_is_better": False}],
        }
        (self.path / f"20261101-{self._files:06}.json").write_text(json.dumps(record), encoding="utf-8")

    def drop_newest(self) -> None:
        """Remove the newest result."""
        max(self.path.glob("2*.json")).unlink()

    def gate(self, *arguments: str) -> int:
        """Run the gate."""
        return main(["--folder", str(self.path), *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with three results of one level, accepted as the baseline."""
    made = Folder(tmp_path)
    for _ in range(3):
        made.add(1.0)
    assert made.gate("--accept") == 0
    return made


def test_a_change_in_either_direction_fails(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.path / "gpu-20261102-000000.json").write_text('{"groups": {}}', encoding="utf-8")  # is not judged
    for level, status, said in (
        (1.01, 0, "unchanged step time: +"),
        (1.12, 1, "the limit is 5%: find the change, or accept it: make bench-gate ACCEPT=1"),
        (0.88, 1, "make it the baseline"),
    ):
        folder.add(level)
        assert folder.gate() == status
        assert said in capsys.readouterr().out
        folder.drop_newest()


def test_an_accepted_level_is_the_new_baseline(folder: Folder) -> None:
    for _ in range(4):
        folder.add(0.8)
    assert folder.gate() == 1
    assert folder.gate("--accept") == 0
    assert folder.gate() == 0
    accepted = json.loads((folder.path / BASELINE).read_text(encoding="utf-8"))["comparisons"]
    assert len(accepted[0]["ours"]) == 4 * 6  # the new level's rounds only


def test_a_slow_loss_is_found_that_no_single_result_shows(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest result alone looks unchanged; the level that it is on does not."""
    for _ in range(8):
        folder.add(1.06)
    folder.add(1.045)
    assert folder.gate() == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("worse")


def test_results_of_too_few_rounds_are_uncertain(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.add(1.2, rounds=2)
    assert folder.gate() == 3
    assert "about 5 rounds are needed" in capsys.readouterr().out


def test_what_cannot_be_judged_is_refused_with_its_name_or_remedy(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.add(1.0, cores=64)
    assert folder.gate() == 2
    assert "results of different machines are not compared" in capsys.readouterr().err
    folder.drop_newest()
    for damage in ("", "{}", '{"machine": {"cpu": "x", "cores": 2}, "comparisons": [1]}'):
        (folder.path / "20261102-000000.json").write_text(damage, encoding="utf-8")
        assert folder.gate() == 2
        assert "20261102-000000.json is not a result file" in capsys.readouterr().err
    empty = Folder(tmp_path_factory.mktemp("empty"))
    assert empty.gate() == 2
    assert "`make bench-scaling` writes some" in capsys.readouterr().err
    empty.add(1.0)
    assert empty.gate() == 2
    assert "`make bench-gate ACCEPT=1` makes the newest results one" in capsys.readouterr().err
