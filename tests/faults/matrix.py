"""The table of cells."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from observability.runlog import Restored, read_all, select
from tests.faults import bucket, clock, hosts, mlflow_away, resize
from tests.faults import injections as faults
from tests.faults.cell import EVERY_STEPS, Cell, Fault, alone, failing, fixed, two_ranks
from tests.faults.injections import STEP
from tests.faults.run import FaultedRun, run_on_small_disk

_PLAIN = fixed(two_ranks())
_MLP = fixed(two_ranks(model={"name": "mlp", "options": {}}))
_WIDE = fixed(two_ranks(model={"name": "mlp", "options": {"hidden": [4096]}}))
_IMPATIENT = fixed(two_ranks(scale={"collective_timeout": 2}))
_ALONE = fixed(alone())
_AT_STEP = f"step {STEP}"

_CODE: Final = (
    Cell(
        "worker-exception",
        Fault("rank 1 raises an exception; resumed with corrected code", _AT_STEP, "code"),
        failing("raising", step=STEP, rank=1),
        faults.by_the_model,
        reference=_PLAIN,
        status=1,
    ),
    Cell(
        "nan-stop",
        Fault("NaN under loop.nonfinite=stop; resumed", _AT_STEP, "code"),
        failing("not_finite", step=STEP),
        faults.by_the_model,
        reference=_PLAIN,
        status=1,
    ),
    Cell(
        "nan-skip",
        Fault("NaN under loop.nonfinite=skip; compared with a run that skips the same step", _AT_STEP),
        failing("not_finite", step=STEP, loop={"nonfinite": "skip"}),
        faults.by_the_model,
        most_lost=0,
    ),
)

_KILL_0: Final = faults.at_step(STEP, faults.kill_rank(0))
_WITHOUT_BUFFERS = "SIGKILL of rank 0 of a model without buffers"
_WITH_BUFFERS = "SIGKILL of rank 0, whose batch norm statistics no other rank has"

_PROCESSES: Final = (
    Cell(
        "rank-1-killed",
        Fault("SIGKILL of rank 1", _AT_STEP, "lost_process"),
        _PLAIN,
        faults.at_step(STEP, faults.kill_rank(1)),
        most_lost=1,
    ),
    Cell("rank-0-killed", Fault(_WITH_BUFFERS, _AT_STEP, "lost_process"), _PLAIN, _KILL_0),
    Cell("rank-0-killed-no-buffers", Fault(_WITHOUT_BUFFERS, _AT_STEP, "lost_process"), _MLP, _KILL_0, most_lost=1),
    Cell(
        "rank-1-stopped",
        Fault("SIGSTOP of rank 1; scale.collective_timeout=2", _AT_STEP, "hang"),
        _IMPATIENT,
        faults.at_step(STEP, faults.stop_rank(1)),
        reference=_PLAIN,
        most_lost=1,
    ),
    Cell(
        "agent-killed",
        Fault("SIGKILL of the Ray worker above rank 1", _AT_STEP, "lost_process"),
        _PLAIN,
        faults.at_step(STEP, faults.kill_agent(1)),
    ),
    Cell(
        "driver-killed",
        Fault("SIGKILL of the driver; resumed", _AT_STEP),
        _PLAIN,
        faults.at_step(STEP, faults.kill_driver),
        status=-signal.SIGKILL,
    ),
)

_COMMITS: Final = (
    Cell(
        "killed-before-commit",
        Fault("SIGKILL of rank 0 in the step of a commit", f"step {2 * EVERY_STEPS}", "lost_process"),
        failing("killed", step=2 * EVERY_STEPS),
        faults.by_the_model,
        reference=_PLAIN,
    ),
    Cell(
        "killed-during-commit",
        Fault("SIGKILL of rank 0 with a checkpoint half written", "no manifest yet", "lost_process"),
        _WIDE,
        faults.kill_rank_during_commit,
    ),
    Cell(
        "killed-after-commit",
        Fault("SIGKILL of rank 0 after a commit", f"commit {faults.COMMITS}", "lost_process"),
        _PLAIN,
        faults.after_commits(faults.kill_rank(0)),
    ),
)


def _damaged(name: str, what: str, damage: faults.Damage) -> Cell:
    """The driver is killed, and the newest checkpoint damaged; the one before is taken."""
    fault = Fault(f"{what}, and SIGKILL of the driver; resumed", f"commit {faults.COMMITS}")
    inject = faults.damage_newest_checkpoint(damage)
    return Cell(name, fault, _ALONE, inject, status=-signal.SIGKILL, check=_fell_back)


def _fell_back(run: FaultedRun) -> None:
    """The damage was noticed, and the checkpoint before was taken."""
    (restored,) = select(read_all(run.folder), Restored)
    assert run.damaged is not None
    # One that the driver was writing as it was killed is skipped as well.
    assert restored.skipped[-1].startswith(f"{run.damaged.name}: ")
    assert restored.step > 0


_STORAGE: Final = (
    _damaged("checkpoint-truncated", "newest checkpoint truncated", faults.truncate_tensors),
    _damaged("checkpoint-bit-flipped", "a bit of the newest checkpoint flipped", faults.flip_a_bit),
    _damaged("checkpoint-file-missing", "a file of the newest checkpoint missing", faults.remove_loop_state),
    _damaged("manifest-truncated", "manifest of the newest checkpoint truncated", faults.truncate_manifest),
    _damaged("manifest-missing", "manifest of the newest checkpoint missing", faults.remove_manifest),
    Cell(
        "disk-full",
        Fault("disk full; resumed with space", _AT_STEP, "full_disk"),
        fixed(alone(loop={"epochs": 40})),
        faults.at_step(STEP, faults.fill_the_disk),
        status=1,
        repair=faults.empty_the_disk,
        run_on=run_on_small_disk,
    ),
)

CELLS: Final[Sequence[Cell]] = (
    *_CODE,
    *_PROCESSES,
    *_COMMITS,
    *_STORAGE,
    *bucket.CELLS,
    *mlflow_away.CELLS,
    *hosts.CELLS,
    *resize.CELLS,
    *clock.CELLS,
)
