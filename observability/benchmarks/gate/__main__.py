"""`python -m observability.benchmarks.gate`: judge the newest benchmark results against the accepted baseline.

Exit status: 0 nothing changed, or the baseline was accepted; 1 something is worse, or better, which asks for a new baseline; 2 wrong input;
3 too uncertain to say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from observability.benchmarks.gate.history import (
    BASELINE,
    HistoryError,
    Level,
    Results,
    newest_level,
    read_history,
    read_results,
)
from observability.benchmarks.gate.judge import LIMIT, PRECISION, Outcome, Verdict, judge
from observability.benchmarks.measure import Comparison

_ACCEPT = "make bench-gate ACCEPT=1"
_STATUS: Mapping[Outcome, int] = {Outcome.UNCHANGED: 0, Outcome.WORSE: 1, Outcome.BETTER: 1, Outcome.UNCERTAIN: 3}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each comparison; returns the exit status."""
    arguments = parser().parse_args(argv)
    try:
        history = read_history(arguments.folder)
        if not history:
            raise HistoryError(f"{arguments.folder} has no results; `make bench` or `make bench-scaling` writes some")
        file = arguments.baseline or arguments.folder / BASELINE
        return _accept(history, file) if arguments.accept else _gate(history, file)
    except HistoryError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m observability.benchmarks.gate", description=__doc__)
    made.add_argument("--folder", type=Path, default=Path(".local/bench"), help="folder of the results (.local/bench)")
    made.add_argument("--baseline", type=Path, help=f"file of the baseline (default {BASELINE} in the folder)")
    made.add_argument("--accept", action="store_true", help="make the newest level of each comparison the baseline")
    return made


def _accept(history: Sequence[Results], file: Path) -> int:
    """Replace the baseline of the comparisons in the newest results; the others stay."""
    newest = history[-1]
    kept = dict(read_results(file).comparisons) if file.exists() else {}
    for name in newest.comparisons:
        kept[name] = newest_level(history, name, newest.machine).near_newest(LIMIT)
        print(f"accepted: {name}, ratio {kept[name].ratio:.3f} of {len(kept[name].ours)} rounds")
    record = {
        "machine": {"cpu": newest.machine[0], "cores": newest.machine[1]},
        "comparisons": [one.dump() for one in kept.values()],
    }
    file.write_text(json.dumps(record, indent=2), encoding="utf-8")
    print(f"written to {file}")
    return 0


def _gate(history: Sequence[Results], file: Path) -> int:
    newest = history[-1]
    if not file.exists():
        raise HistoryError(f"there is no baseline {file}; `{_ACCEPT}` makes the newest results one")
    baseline = read_results(file)
    if baseline.machine != newest.machine:
        raise HistoryError(
            f"{newest.file} was measured on {newest.machine}, the baseline {file} on {baseline.machine}: results of "
            f"different machines are not compared; run the benchmark on the baseline's machine, or `{_ACCEPT}`"
        )
    statuses = []
    for name, comparison in newest.comparisons.items():
        base = baseline.comparisons.get(name)
        if base is None:
            print(f"new       {name}: no baseline; `{_ACCEPT}`")
            continue
        verdict = judge(comparison.ratios, base.ratios, higher_is_better=comparison.higher_is_better)
        level = newest_level(history, name, newest.machine)
        statuses.append(_report(comparison, verdict, _drift(level, base)))
    return max(statuses, key=_severity, default=0)


def _drift(level: Level, base: Comparison) -> Verdict | None:
    """The verdict on the newest level as a whole: small changes that add up, each too small to be found in one result."""
    return judge(level.pooled.ratios, base.ratios, higher_is_better=base.higher_is_better) if level.is_shift else None


def _report(comparison: Comparison, verdict: Verdict, drift: Verdict | None) -> int:
    if verdict.outcome in {Outcome.UNCHANGED, Outcome.UNCERTAIN} and drift is not None and _STATUS[drift.outcome] == 1:
        verdict = drift
    print(f"{verdict.outcome:9} {comparison.name}: {verdict.change:+.1%} ± {verdict.error:.1%}{_remedy(verdict)}")
    return _STATUS[verdict.outcome]


def _remedy(verdict: Verdict) -> str:
    match verdict.outcome:
        case Outcome.WORSE:
            return f"; the limit is {LIMIT:.0%}: find the change, or accept it: {_ACCEPT}"
        case Outcome.BETTER:
            return f"; make it the baseline, or the next regression hides behind it: {_ACCEPT}"
        case Outcome.UNCERTAIN if verdict.rounds_needed is None:
            return f"; the baseline's own error exceeds {PRECISION:.1%}: measure it again on a quiet machine"
        case Outcome.UNCERTAIN:
            return f"; the error must be {PRECISION:.1%}: about {verdict.rounds_needed} rounds are needed"
        case Outcome.UNCHANGED:
            return ""


def _severity(status: int) -> int:
    """A change outweighs an uncertain result."""
    return {0: 0, 3: 1, 1: 2}[status]


if __name__ == "__main__":
    sys.exit(main())
