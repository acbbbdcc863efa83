"""The table of cells."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from observability.runlog import Restored, read_all, select
from tests.faults import bucket, clock, hosts, mlflow_away, resize
from tests.faults import injections as faults
from tests.faults.cell import Cell, Fault
from tests.faults.disk import run_on_small_disk
from tests.faults.injections import STEP
from tests.faults.run import FaultedRun
from tests.faults.settings import EVERY_STEPS, alone, failing, fixed, two_ranks

_PLAIN = fixed(two_ranks())
_MLP = fixed(two_ranks(model={"name": "mlp", "options": {}}))
_WIDE = fixed(two_ranks(model={"name": "mlp", "options": {"hidden": [4096]}}))
_IMPATIENT = fixed(two_ranks(scale={"collective_timeout": 2}))
_ALONE = fixed(alone())
_LONGER_ALONE = fixed(alone(loop={"epochs": 40}))
_MODELS = "tests.training.faults.models"
_NOT_FINITE = "tests.faults.models:not_finite"
_AT_STEP = f"step {STEP}"

_CODE: Final = (
    Cell(
        name="worker-exception",
        fault=Fault(what="rank 1 raises an exception; resumed with corrected code", when=_AT_STEP, cause="code"),
        settings=failing(f"{_MODELS}:raising", step=STEP, rank=1),
        reference=_PLAIN,
        inject=faults.by_the_model,
        status=1,
    ),
    Cell(
        name="nan-stop",
        fault=Fault(what="NaN under loop.nonfinite=stop; resumed", when=_AT_STEP, cause="code"),
        settings=failing(_NOT_FINITE, step=STEP),
        reference=_PLAIN,
        inject=faults.by_the_model,
        status=1,
    ),
    Cell(
        name="nan-skip",
        fault=Fault(what="NaN under loop.nonfinite=skip; compared with a run that skips the same step", when=_AT_STEP),
        settings=failing(_NOT_FINITE, step=STEP, loop={"nonfinite": "skip"}),
        reference=failing(_NOT_FINITE, step=STEP, loop={"nonfinite": "skip"}),
        inject=faults.by_the_model,
        most_lost=0,
    ),
)

_PROCESSES: Final = (
    Cell(
        name="rank-1-killed",
        fault=Fault(what="SIGKILL of rank 1", when=_AT_STEP, cause="lost_process"),
        settings=_PLAIN,
        reference=_PLAIN,
        inject=faults.at_step(STEP, faults.kill_rank(1)),
        most_lost=1,
    ),
    Cell(
        name="rank-0-killed",
        fault=Fault(
            what="SIGKILL of rank 0, whose batch norm statistics no other rank has", when=_AT_STEP, cause="lost_process"
        ),
        settings=_PLAIN,
        reference=_PLAIN,
        inject=faults.at_step(STEP, faults.kill_rank(0)),
    ),
    Cell(
        name="rank-0-killed-no-buffers",
        fault=Fault(what="SIGKILL of rank 0 of a model without buffers", when=_AT_STEP, cause="lost_process"),
        settings=_MLP,
        reference=_MLP,
        inject=faults.at_step(STEP, faults.kill_rank(0)),
        most_lost=1,
    ),
    Cell(
        name="rank-1-stopped",
        fault=Fault(what="SIGSTOP of rank 1; scale.collective_timeout=2", when=_AT_STEP, cause="hang"),
        settings=_IMPATIENT,
        reference=_PLAIN,
        inject=faults.at_step(STEP, faults.stop_rank(1)),
        most_lost=1,
    ),
    Cell(
        name="agent-killed",
        fault=Fault(what="SIGKILL of the Ray worker above rank 1", when=_AT_STEP, cause="lost_process"),
        settings=_PLAIN,
        reference=_PLAIN,
        inject=faults.at_step(STEP, faults.kill_agent(1)),
    ),
    Cell(
        name="driver-killed",
        fault=Fault(what="SIGKILL of the driver; resumed", when=_AT_STEP),
        settings=_PLAIN,
        reference=_PLAIN,
        inject=faults.at_step(STEP, faults.kill_driver),
        status=-signal.SIGKILL,
    ),
)

_COMMITS: Final = (
    Cell(
        name="killed-before-commit",
        fault=Fault(
            what="SIGKILL of rank 0 in the step of a commit", when=f"step {2 * EVERY_STEPS}", cause="lost_process"
        ),
        settings=failing(f"{_MODELS}:killed", step=2 * EVERY_STEPS, rank=0),
        reference=_PLAIN,
        inject=faults.by_the_model,
    ),
    Cell(
        name="killed-during-commit",
        fault=Fault(
            what="SIGKILL of rank 0 with a checkpoint half written", when="no manifest yet", cause="lost_process"
        ),
        settings=_WIDE,
        reference=_WIDE,
        inject=faults.kill_rank_during_commit,
    ),
    Cell(
        name="killed-after-commit",
        fault=Fault(what="SIGKILL of rank 0 after a commit", when=f"commit {faults.COMMITS}", cause="lost_process"),
        settings=_PLAIN,
        reference=_PLAIN,
        inject=faults.kill_rank_after_commit(0),
    ),
)


def _damaged(name: str, what: str, damage: faults.Damage) -> Cell:
    """The driver is killed, and the newest checkpoint damaged; the one before is taken."""
    return Cell(
        name=name,
        fault=Fault(what=f"{what}, and SIGKILL of the driver; resumed", when=f"commit {faults.COMMITS}"),
        settings=_ALONE,
        reference=_ALONE,
        inject=faults.damage_newest_checkpoint(damage),
        status=-signal.SIGKILL,
        check=_fell_back,
    )


def _fell_back(run: FaultedRun) -> None:
    """The damage was noticed, and the checkpoint before was taken."""
    (restored,) = select(read_all(run.folder), Restored)
    assert run.damaged is not None
    # One that the driver was writing as it was killed is skipped as well.
    assert restored.skipped[-1].startswith(f"{run.damaged.name}: ")
    assert restored.step > 0


OF_STORAGE: Final[Sequence[Cell]] = (
    _damaged("checkpoint-truncated", "newest checkpoint truncated", faults.truncate_tensors),
    _damaged("checkpoint-bit-flipped", "a bit of the newest checkpoint flipped", faults.flip_a_bit),
    _damaged("checkpoint-file-missing", "a file of the newest checkpoint missing", faults.remove_loop_state),
    _damaged("manifest-truncated", "manifest of the newest checkpoint truncated", faults.truncate_manifest),
    _damaged("manifest-missing", "manifest of the newest checkpoint missing", faults.remove_manifest),
    Cell(
        name="disk-full",
        fault=Fault(what="disk full; resumed with space", when=_AT_STEP, cause="full_disk"),
        settings=_LONGER_ALONE,
        reference=_LONGER_ALONE,
        inject=faults.at_step(STEP, faults.fill_the_disk),
        status=1,
        repair=faults.empty_the_disk,
        run_on=run_on_small_disk,
    ),
)

OF_PROCESSES: Final[Sequence[Cell]] = (*_CODE, *_PROCESSES, *_COMMITS)
"""Faults of the code and the processes of a run."""

CELLS: Final[Sequence[Cell]] = (
    *OF_PROCESSES,
    *OF_STORAGE,
    *bucket.CELLS,
    *mlflow_away.CELLS,
    *hosts.CELLS,
    *resize.CELLS,
    *clock.CELLS,
)
