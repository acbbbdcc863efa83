"""The gate's command on result files, and its judgement: changes of a tenth are found, and noise is ignored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from observability.benchmarks.gate.__main__ import main
from observability.benchmarks.gate.change_points import change_points
from observability.benchmarks.gate.history import BASELINE
from observability.benchmarks.gate.judge import MIN_ROUNDS, PRECISION, Outcome, judge
from observability.benchmarks.gate.power import outcomes, report

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


_TRIALS = 200


def _rounds(count: int, *, noise: float, generator: np.random.Generator, change: float = 0.0) -> list[float]:
    """Ratios with the noise of a machine with other load: mostly normal, with one round in ten that something disturbed."""
    spread = np.where(generator.random(count) < 0.1, 4 * noise, noise)
    return [float(one) for one in (1 + change) * np.exp(generator.normal(0, spread))]


def _outcomes(*, change: float, noise: float, rounds: int, higher_is_better: bool = True) -> list[Outcome]:
    generator = np.random.default_rng(7)
    found = []
    for _ in range(_TRIALS):
        baseline = _rounds(3 * rounds, noise=noise, generator=generator)
        new = _rounds(rounds, noise=noise, generator=generator, change=change)
        found.append(judge(new, baseline, higher_is_better=higher_is_better).outcome)
    return found


def test_a_change_of_a_tenth_is_found_in_nineteen_of_twenty() -> None:
    for change, expected in ((-0.1, Outcome.WORSE), (0.1, Outcome.BETTER)):
        for rounds in (5, 10):
            found = _outcomes(change=change, noise=0.02, rounds=rounds)
            decided = _TRIALS - found.count(Outcome.UNCERTAIN)
            assert decided >= 0.8 * _TRIALS
            assert found.count(expected) >= 0.95 * decided, (change, rounds)


def test_noise_is_taken_for_a_change_in_at_most_one_of_twenty() -> None:
    for noise in (0.01, 0.02, 0.05):
        found = _outcomes(change=0.0, noise=noise, rounds=6)
        assert sum(one in {Outcome.WORSE, Outcome.BETTER} for one in found) <= 0.05 * _TRIALS, noise


def test_more_time_is_worse_where_less_is_better() -> None:
    assert set(_outcomes(change=0.2, noise=0.01, rounds=6, higher_is_better=False)) == {Outcome.WORSE}


def test_too_few_rounds_are_never_judged() -> None:
    verdict = judge([0.5] * (MIN_ROUNDS - 1), [1.0] * 10, higher_is_better=True)
    assert verdict.outcome is Outcome.UNCERTAIN
    assert verdict.rounds_needed == MIN_ROUNDS
    for ratios in ([], [1.0, 0.0], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="needs one positive ratio for each round"):
            judge(ratios, [1.0] * 5, higher_is_better=True)


def test_noisy_rounds_say_how_many_are_needed() -> None:
    generator = np.random.default_rng(1)
    baseline = _rounds(40, noise=0.02, generator=generator)
    few = judge(_rounds(6, noise=0.15, generator=generator), baseline, higher_is_better=True)
    assert few.outcome is Outcome.UNCERTAIN
    assert few.error > PRECISION
    assert few.rounds_needed is not None
    assert few.rounds_needed > 6
    useless = judge(baseline, _rounds(5, noise=0.3, generator=generator), higher_is_better=True)
    assert useless.rounds_needed is None


def rounds(level: float, *, noise: float, count: int = 40, seed: int = 3) -> list[float]:
    """Rounds around a level, with a relative standard deviation."""
    return [level * float(np.exp(one)) for one in np.random.default_rng(seed).normal(0, noise, count)]


def test_a_quiet_machine_finds_a_tenth_with_few_rounds_and_takes_no_noise_for_a_change() -> None:
    quiet = rounds(1.0, noise=0.02)
    assert outcomes(quiet, rounds(1.1, noise=0.02, seed=4), rounds=6)[Outcome.WORSE] >= 190
    assert outcomes(quiet, quiet, rounds=6)[Outcome.UNCHANGED] >= 190


def test_a_noisy_machine_needs_more_rounds() -> None:
    noisy, slower = rounds(1.0, noise=0.08), rounds(1.1, noise=0.08, seed=4)
    few, many = (outcomes(noisy, slower, rounds=count) for count in (6, 30))
    assert few[Outcome.UNCERTAIN] > 100 > many[Outcome.UNCERTAIN]
    assert few[Outcome.UNCHANGED] == many[Outcome.BETTER] == 0


def test_too_few_rounds_to_draw_from_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 15 rounds or more of both, got 14 and 40"):
        outcomes([1.0] * 14, [1.0] * 40, rounds=6)


@pytest.mark.extended
def test_the_report_names_the_measured_change_and_every_size_of_a_result() -> None:
    level = [1.0] * 20
    lines = report(
        {"platform": level, "bare_ddp": level, "slower_platform": [1.1] * 20, "slower_bare_ddp": [1.25] * 20}
    )
    assert len(lines) == 12
    assert lines[4] == "platform slower by a tenth, +10.0% in the median; of 200 results of 6 rounds: worse 200"
    assert lines[8] == "baseline slower by a tenth, -20.0% in the median; of 200 results of 6 rounds: better 200"


def _noisy(levels: list[tuple[int, float]], *, noise: float, seed: int) -> list[float]:
    generator = np.random.default_rng(seed)
    return [level * float(np.exp(generator.normal(0, noise))) for runs, level in levels for _ in range(runs)]


def test_a_short_or_constant_series_and_one_outlier_are_no_change_of_level() -> None:
    with_outlier = _noisy([(20, 1.0)], noise=0.01, seed=3)
    with_outlier[9] *= 1.5
    for values in ([], [1.0, 1.0, 2.0, 2.0, 2.0], [1.0] * 30, with_outlier):
        assert change_points(values) == []


@pytest.mark.parametrize("level", [0.9, 1.1])
def test_a_level_that_changes_by_a_tenth_is_found_where_it_changes(level: float) -> None:
    found = [change_points(_noisy([(12, 1.0), (8, level)], noise=0.02, seed=seed)) for seed in range(20)]
    assert sum(points == [12] for points in found) >= 19


def test_two_changes_are_found_oldest_first() -> None:
    assert change_points(_noisy([(10, 1.0), (10, 1.2), (10, 0.9)], noise=0.02, seed=1)) == [10, 20]


def test_noise_has_none_in_nineteen_of_twenty_series() -> None:
    found = [change_points(_noisy([(20, 1.0)], noise=0.05, seed=seed)) for seed in range(40)]
    assert sum(points == [] for points in found) >= 38
