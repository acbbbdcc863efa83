"""Faults, as they are done to the processes and files of a run. Each function makes an `Inject`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from observability.runlog import CheckpointCommitted, Event
from tests.faults.cell import Inject
from tests.faults.run import FaultedRun
from training.checkpoint.manifest import LOOP_STATE_FILE, MANIFEST_FILE
from training.checkpoint.store import FOLDER, committed_steps, folder_name

STEP = 50
"""Of most faults."""

COMMITS = 2
"""Checkpoints that a run has when its newest one is damaged."""

Damage = Callable[[Path], None]
"""Damages the folder of a checkpoint."""


def at_step(step: int, act: Callable[[FaultedRun], None]) -> Inject:
    """Act once the log has a step."""
    return _after(lambda run: run.wait_for_step(step), act)


def by_the_model(run: FaultedRun) -> float:
    """The model itself fails, and creates the file that its option `trace` names when it does."""
    trace = Path(str(run.settings.model.options["trace"]))
    while not trace.exists():
        assert run.driver.process.poll() is None, run.driver.end()
        time.sleep(0.005)
    return trace.stat().st_mtime


def kill_rank(rank: int) -> Callable[[FaultedRun], None]:
    """SIGKILL of a rank's process."""
    return lambda run: run.rank(rank).kill()


def stop_rank(rank: int) -> Callable[[FaultedRun], None]:
    """SIGSTOP of a rank's process, which stays and does nothing."""
    return lambda run: run.rank(rank).suspend()


def kill_agent(rank: int) -> Callable[[FaultedRun], None]:
    """SIGKILL of the Ray worker that is the agent of a rank, above the fork server and the rank."""

    def act(run: FaultedRun) -> None:
        server = run.rank(rank).parent()
        assert server is not None
        agent = server.parent()
        assert agent is not None
        agent.kill()

    return act


def kill_driver(run: FaultedRun) -> None:
    """SIGKILL of the driver; what it started has to end by itself."""
    run.kill_driver()
    run.driver.wait_for_descendants()


def kill_driver_and_flip_a_bit(run: FaultedRun) -> None:
    """SIGKILL of the driver, and damage to the newest checkpoint if there is an older one."""
    kill_driver(run)
    if len(committed_steps(run.folder / FOLDER)) > 1:
        flip_a_bit(newest_checkpoint(run))


def after_commits(act: Callable[[FaultedRun], None]) -> Inject:
    """Act right after so many commits that the newest checkpoint has one before it."""
    return _after(lambda run: run.wait_for(is_commit(COMMITS)), act)


def _after(wait: Callable[[FaultedRun], object], act: Callable[[FaultedRun], None]) -> Inject:
    def inject(run: FaultedRun) -> float:
        wait(run)
        began = time.time()
        act(run)
        return began

    return inject


def kill_rank_during_commit(run: FaultedRun) -> float:
    """SIGKILL of rank 0 while it writes a checkpoint: it is stopped, and killed if the folder is there and the manifest is not."""
    run.wait_for(is_commit(COMMITS))
    writer = run.rank(0)
    folder = run.folder / FOLDER
    while run.driver.process.poll() is None:
        if not _is_unfinished(folder):
            continue
        writer.suspend()
        while writer.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        if _is_unfinished(folder):
            began = time.time()
            writer.kill()
            return began
        writer.resume()
    raise AssertionError(f"the run ended before a commit was met: {run.driver.end()}")


def _is_unfinished(folder: Path) -> bool:
    """Whether the newest checkpoint has files and no manifest. Those that are pruned are older."""
    newest = max((path.name for path in folder.iterdir()), default=None)
    if newest is None:
        return False
    with suppress(FileNotFoundError):
        names = [path.name for path in (folder / newest).iterdir()]
        return bool(names) and MANIFEST_FILE not in names
    return False


def is_commit(count: int) -> Callable[[Event], bool]:
    """Whether this is the `count`-th commit, of one driver."""
    seen: list[Event] = []

    def has_happened(event: Event) -> bool:
        if isinstance(event, CheckpointCommitted):
            seen.append(event)
        return len(seen) == count

    return has_happened


def damage_newest_checkpoint(damage: Damage) -> Inject:
    """SIGKILL of the driver, and damage to the newest checkpoint before the run is resumed."""

    def act(run: FaultedRun) -> None:
        kill_driver(run)
        run.damaged = newest_checkpoint(run)
        damage(run.damaged)

    return after_commits(act)


def newest_checkpoint(run: FaultedRun) -> Path:
    """The folder of the newest committed checkpoint."""
    folder = run.folder / FOLDER
    return folder / folder_name(max(committed_steps(folder)))


def _largest(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.name != MANIFEST_FILE), key=lambda path: path.stat().st_size)


def truncate_tensors(folder: Path) -> None:
    """Cut the largest file in half."""
    path = _largest(folder)
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(folder: Path) -> None:
    """Flip one bit in the middle of the largest file; its size stays."""
    path = _largest(folder)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def remove_loop_state(folder: Path) -> None:
    """Remove a file that the manifest lists."""
    (folder / LOOP_STATE_FILE).unlink()


def truncate_manifest(folder: Path) -> None:
    """Cut the manifest in half."""
    path = folder / MANIFEST_FILE
    os.truncate(path, path.stat().st_size // 2)


def remove_manifest(folder: Path) -> None:
    """Remove the manifest: the checkpoint was never committed."""
    (folder / MANIFEST_FILE).unlink()


def fill_the_disk(run: FaultedRun) -> None:
    """Leave less space than a checkpoint needs."""
    with (run.root / "ballast").open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(2**20))
        file.truncate(file.tell() - 64 * 1024)


def empty_the_disk(run: FaultedRun) -> None:
    """Give the space back."""
    (run.root / "ballast").unlink()
