"""`make faults`: runs the matrix and a soak, prints progress, and writes what they measured into docs/FAULTS.md."""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Sequence

import pytest

from infra.spec.command_line import Number
from tests.faults.cell import Cell
from tests.faults.document import row, write_cells, write_soak
from tests.faults.matrix import CELLS
from tests.faults.proof import run_cell
from tests.faults.soak import describe, plan, soak


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments choose; 1 if a cell or the soak failed."""
    options = _parser().parse_args(arguments)
    cells = {cell.name: cell for cell in CELLS}
    chosen = list(CELLS) if options.only is None else [cells[name] for name in options.only]
    failed = _run_cells(chosen, writes=not options.dry)
    if options.soak:
        failed += _run_soak(options.soak, seed=options.seed, writes=not options.dry)
    if failed:
        _say(f"failed: {', '.join(failed)}")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--only", nargs="*", choices=[cell.name for cell in CELLS], help="these cells; none of them if empty"
    )
    parser.add_argument("--soak", type=Number(int, at_least=0), default=60, help="faults of the soak; 0 leaves it out")
    parser.add_argument("--seed", type=int, default=None, help="of the soak; random by default, and printed")
    parser.add_argument("--dry", action="store_true", help="do not write docs/FAULTS.md")
    return parser


def _run_cells(cells: Sequence[Cell], *, writes: bool) -> list[str]:
    """Run cells, and write the row of each as soon as it is known; returns the names of those that failed."""
    failed = []
    for number, cell in enumerate(cells, start=1):
        _say(f"[{number}/{len(cells)}] {cell.name}: {cell.fault.what}, at {cell.fault.when}")
        began = time.monotonic()
        try:
            found = row(cell, run_cell(cell))
        except pytest.skip.Exception as skipped:
            found = row(cell, f"not here: {skipped}")
        except Exception:  # noqa: BLE001 - the other cells are run
            failed.append(cell.name)
            traceback.print_exc()
            continue
        _say(f"    {found}  ({time.monotonic() - began:.0f} s)")
        if writes:
            write_cells({cell.name: found})
    return failed


def _run_soak(count: int, *, seed: int | None, writes: bool) -> list[str]:
    """Run a soak; returns its name if it failed."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    _say(f"soak of {count} faults; seed {seed}")
    planned = plan(count, seed=seed)
    try:
        soaked = soak(planned, say=_say)
    except Exception:  # noqa: BLE001 - reported with its seed
        traceback.print_exc()
        return [f"soak of {count} faults, seed {seed}"]
    lines = describe(soaked, seed=seed)
    _say("\n".join(lines))
    if writes:
        write_soak(lines)
    return []


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
