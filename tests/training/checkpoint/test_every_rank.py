"""What every rank writes a part of or has in memory: who can read it, which is restored, and what happens when a rank is slow or fails."""

from __future__ import annotations

import errno
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load

from tests.engines.small_disk import small_disk as mounted
from tests.limits import files_up_to
from tests.training.checkpoint.parts import IDENTITY, SmallRun, assert_same, checkpointer, newest, progress
from tests.training.checkpoint.sharded import ShardedRun, keep_reference, writer_of
from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from tests.waiting import wait_until
from training.checkpoint import weights
from training.checkpoint.manifest import SHARDED_FORMAT
from training.checkpoint.memory import RankMemory
from training.checkpoint.state import ModelState
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.storage import LocalStorage
from training.checkpoint.store import CheckpointStore, local_store
from training.checkpoint.weights import load_weights, read_whole
from training.config.schema import StrategySettings
from training.errors import CheckpointError, ResumeMismatchError
from training.failures import Failure
from training.launch.task import RankPlace

FSDP2 = StrategySettings(name="fsdp2")
HSDP = StrategySettings(name="hsdp", replicas=2)


def _save(place: RankPlace, folder: Path, settings: StrategySettings) -> None:
    with in_group(place):
        run = ShardedRun(settings)
        with writer_of(local_store(folder)) as writer:
            for _ in range(2):
                run.train()
                run.save(writer, final=True)
        keep_reference(run, folder / "reference.safetensors")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1 and 2 of four ranks under FSDP2, and `reference.safetensors` with the whole tensors of step 2."""
    folder = tmp_path_factory.mktemp("saved")
    on_ranks(4, _save, folder, FSDP2)
    return folder


def test_every_rank_writes_its_rows_and_rank_0_what_is_not_sharded(saved: Path) -> None:
    checkpoint = local_store(saved).open(2, IDENTITY)
    assert checkpoint.manifest.format == SHARDED_FORMAT
    files = {state: [file.name for file in of] for state, of in checkpoint.manifest.tensor_files.items()}
    assert files["model"] == [f"model-rank-0000{rank}.safetensors" for rank in range(4)]
    assert {path.name for path in checkpoint.path.iterdir()} == {name for names in files.values() for name in names} | {
        "state.json",
        "manifest.json",
    }
    rows = [load_file(checkpoint.path / name) for name in files["model"]]
    assert [len(part["0.weight"]) for part in rows] == [2, 2, 2, 1]
    assert ["3.weight" in part for part in rows] == [True, True, False, False], "an empty part was written"
    assert ["1.running_mean" in part for part in rows] == [True, False, False, False]


def test_the_parts_together_are_the_state_of_the_run(saved: Path) -> None:
    reference = load_file(saved / "reference.safetensors")
    checkpoint = local_store(saved).path(2)
    assert_same(
        {
            f"{state}.safetensors:{name}": value
            for state in ("model", "optimizer", "ema")
            for name, value in read_whole(checkpoint, state).items()
        },
        reference,
    )
    assert reference["optimizer.safetensors:step/0.weight"].shape == ()
    assert reference["model.safetensors:1.num_batches_tracked"].dtype == torch.int64


def test_torch_s_own_reader_reads_the_files_of_a_state(saved: Path, tmp_path: Path) -> None:
    for path in local_store(saved).path(2).glob("model-*"):
        (tmp_path / path.name).symlink_to(path)
    target = {"0.weight": torch.zeros(7, 8), "1.running_mean": torch.zeros(7)}
    load(target, storage_reader=HuggingFaceStorageReader(str(tmp_path)), no_dist=True)
    reference = load_file(saved / "reference.safetensors")
    assert_same(target, {name: reference[f"model.safetensors:{name}"] for name in target})


def test_a_module_and_one_file_are_made_of_the_weights_of_a_checkpoint(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, file = local_store(saved).path(2), tmp_path / "model.safetensors"
    monkeypatch.setattr("sys.argv", ["weights", str(checkpoint), str(file)])
    weights.main()
    run = ShardedRun(None, seed=1)
    load_weights(checkpoint, run.strategy.module)
    assert_same(load_file(file), dict(run.strategy.module.state_dict()))
    assert_same(load_file(file), read_whole(checkpoint))
    monkeypatch.setattr("sys.argv", ["weights", str(checkpoint), str(file), "--state", "other"])
    with pytest.raises(SystemExit):
        weights.main()
    assert "has no tensors of 'other'; it has those of ema, model, optimizer" in capsys.readouterr().err


def _resume(place: RankPlace, folder: Path, step: int, settings: StrategySettings) -> bool:
    """Whether the tensors of a checkpoint are in the ranks, after a restart with other weights."""
    with in_group(place):
        run = ShardedRun(settings, seed=1)
        run.states().restore(local_store(folder).open(step, IDENTITY), shards_state=True)
        keep_reference(run, folder / f"resumed-{settings.name}.safetensors")
        return True


def test_a_sharded_checkpoint_resumes_in_one_process_and_back(saved: Path, tmp_path: Path) -> None:
    reference = load_file(saved / "reference.safetensors")
    run = ShardedRun(None, seed=1)
    run.states().restore(local_store(saved).open(2, IDENTITY))
    assert_same(run.whole(), reference)
    run.step = 2
    with checkpointer(local_store(tmp_path)) as writer:
        run.save(writer, final=True)
    assert {path.name for path in local_store(tmp_path).path(2).glob("*.safetensors")} == {
        f"{state}.safetensors" for state in ("model", "optimizer", "ema")
    }
    assert on_ranks(4, _resume, tmp_path, 2, HSDP) == [True] * 4
    assert_same(load_file(tmp_path / "resumed-hsdp.safetensors"), reference)


def test_a_flipped_byte_in_any_rank_s_file_is_found_and_the_older_checkpoint_used(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    store = local_store(folder)
    for file in store.open(2, IDENTITY).manifest.files:
        path = store.path(2) / file.name
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        found = newest(store)
        assert (found.progress.step, found.skipped) == (1, (f"step-00000002: {file.name} does not match its sha256",))
        path.write_bytes(good)
    assert store.verify(2) == []


class _Slow(LocalStorage):
    """Storage that waits for a file before it writes, or before it lists the folders to prune old ones."""

    def __init__(self, directory: Path, *, writes_after: Path | None = None, lists_after: Path | None = None) -> None:
        super().__init__(directory)
        self._writes_after = writes_after
        self.lists_after = lists_after

    @contextmanager
    def writing(self, folder: str, name: str) -> Iterator[Path]:
        if (gate := self._writes_after) is not None:
            wait_until(gate.exists)
        with super().writing(folder, name) as path:
            yield path

    def folders(self) -> list[str]:
        if (gate := self.lists_after) is not None:
            wait_until(gate.exists)
        return super().folders()


def _slow_disk(place: RankPlace, folder: Path) -> list[tuple[int, tuple[int, ...]]]:
    with in_group(place):
        gate = folder.parent / "gate"
        run = ShardedRun(FSDP2)
        storage = _Slow(folder, writes_after=gate if place.rank == 1 else None)
        with writer_of(CheckpointStore(storage)) as writer:
            run.train()
            run.save(writer)
            wait_until(lambda: writer._waiting is None)
            for _ in range(3):
                run.train()
                run.save(writer)
            gate.touch()
        return [(committed.step, committed.superseded) for committed in writer.poll()]


def test_all_ranks_replace_the_same_snapshots_while_one_writes_slowly(tmp_path: Path) -> None:
    first, second = on_ranks(2, _slow_disk, tmp_path / "checkpoints")
    assert (first, second) == ([(1, ()), (4, (2, 3))], [])
    store = local_store(tmp_path / "checkpoints")
    assert store.steps() == [1, 4]
    assert [store.verify(step) for step in store.steps()] == [[], []]


def _slow_pruning(place: RankPlace, folder: Path) -> list[tuple[int, tuple[int, ...]]]:
    """Rank 0 still removes old checkpoints when rank 1 begins the next one: of step 2 rank 0's snapshot waits, rank 1's does not."""
    with in_group(place):
        gate = folder.parent / "gate"
        storage = _Slow(folder)
        run = ShardedRun(FSDP2)
        with writer_of(CheckpointStore(storage)) as writer:
            wait_until(lambda: all(future.done() for future in writer._futures))
            storage.lists_after = gate if place.rank == 0 else None
            for _ in range(2):
                run.train()
                run.save(writer)
                if place.rank == 1 or run.step == 1:
                    wait_until(lambda: writer._waiting is None)
            run.train()
            run.save(writer)
            if place.rank == 0:
                threading.Timer(0.3, gate.touch).start()
            run.train()
            run.save(writer, metric=0.5)
        return [(committed.step, committed.superseded) for committed in writer.poll()]


def test_a_step_that_some_ranks_have_begun_to_write_is_written_by_all(tmp_path: Path) -> None:
    first, _ = on_ranks(2, _slow_pruning, tmp_path / "checkpoints")
    assert first == [(1, ()), (2, (3,)), (4, ())]
    store = local_store(tmp_path / "checkpoints")
    assert [store.verify(step) for step in store.steps()] == [[], [], []]


def _small_files(place: RankPlace, folder: Path) -> tuple[str, list[int]]:
    """Rank 1 may not write files of this size; returns what this rank's error says, and the steps of a later success."""
    with in_group(place):
        run = ShardedRun(FSDP2)
        with writer_of(local_store(folder)) as writer:
            run.train()
            with files_up_to(64) if place.rank == 1 else nullcontext():
                run.save(writer, final=True)
                with pytest.raises(CheckpointError) as caught:
                    writer.poll()
            assert local_store(folder).folder_steps() == []
            dist.barrier()
            run.train()
            run.save(writer, final=True)
            return caught.value.args[0], local_store(folder).steps()


def test_a_rank_that_cannot_write_fails_the_checkpoint_on_all_ranks_by_its_name(tmp_path: Path) -> None:
    first, second = on_ranks(2, _small_files, tmp_path)
    assert first == second
    message, steps = first
    assert message.startswith(f"rank 1: the checkpoint of step 1 could not be written to {tmp_path}: File too large")
    assert steps == [2]


def _full_disk(place: RankPlace, disk: Path) -> Failure:
    """The failure of a save to a full disk, after one that fitted, and before one that fits again."""
    with in_group(place):
        run, store, ballast = ShardedRun(FSDP2), local_store(disk / "checkpoints"), disk / "ballast"
        with writer_of(store) as writer:
            run.train()
            run.save(writer, final=True)
            if place.rank == 0:
                ballast.write_bytes(bytes(shutil.disk_usage(disk).free - 8192))
            dist.barrier()
            run.train()
            run.save(writer, final=True)
            with pytest.raises(CheckpointError) as caught:
                writer.poll()
            assert store.folder_steps() == [1]
            dist.barrier()
            ballast.unlink(missing_ok=True)
            run.save(writer, final=True)
            assert [store.verify(step) for step in store.folder_steps()] == [[], []]
            return Failure.of(caught.value, rank=place.rank)


def test_on_a_full_disk_all_ranks_fail_as_one_and_the_older_checkpoint_stays(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", size="256k") as disk:
        first, second = on_ranks(2, _full_disk, disk)
    assert (first.message, first.remedy) == (second.message, second.remedy)
    assert first.full_disk == second.full_disk == errno.ENOSPC
    assert re.match(r"rank \d: the checkpoint of step 2 .* needs \d+ bytes and \d+ are free", first.message)
    assert "keep_last" in first.remedy


def _late(place: RankPlace, folder: Path) -> str:
    with in_group(place):
        run = ShardedRun(FSDP2)
        run.train()
        gate = folder.parent / "gate"
        storage = _Slow(folder, writes_after=gate if place.rank == 1 else None)
        writer = writer_of(CheckpointStore(storage), longest_wait=1)
        run.save(writer, final=place.rank == 0)
        if place.rank == 0:
            gate.touch()
        with pytest.raises(dist.DistNetworkError) as caught:
            writer.close()
        return str(caught.value)


def test_a_rank_that_does_not_write_in_time_is_named(tmp_path: Path) -> None:
    first, _ = on_ranks(2, _late, tmp_path / "checkpoints")
    assert first.startswith("rank 1 does not write its part of a checkpoint (it is waited for 1 s): ")
    assert local_store(tmp_path / "checkpoints").steps() == []


def stages(*names: int) -> tuple[nn.ModuleDict, StateRegistry]:
    """Layers of a pipeline, of which each of two ranks has one, and their state."""
    module = nn.ModuleDict({str(name): nn.Linear(3, 3) for name in names})
    return module, StateRegistry(model=ModelState(module))


def _stage(place: RankPlace, folder: Path) -> tuple[bool, str]:
    with in_group(place):
        with writer_of(local_store(folder)) as writer:
            writer.save(progress(1), stages(place.rank)[1], metric=None, final=True)
        checkpoint = local_store(folder).open(1, IDENTITY)
        other, state = stages(1 - place.rank)
        state.restore(checkpoint, shards_state=True)
        saved = read_whole(checkpoint.path)
        is_equal = all(torch.equal(saved[name], value) for name, value in other.state_dict().items())
        with pytest.raises(ResumeMismatchError) as caught:
            stages(0)[1].restore(checkpoint, shards_state=True)
        return is_equal, caught.value.args[0]


def test_ranks_may_have_different_tensors_but_no_tensor_is_left(tmp_path: Path) -> None:
    for is_equal, message in on_ranks(2, _stage, tmp_path):
        assert is_equal
        assert message.endswith("1.bias is float32 [3] in the checkpoint and absent in this run's model")
    whole, state = stages(0, 1)
    state.restore(local_store(tmp_path).open(1, IDENTITY))
    assert_same(dict(whole.state_dict()), read_whole(local_store(tmp_path).path(1)))


def memory_of(folder: Path, *, step: int | None) -> RankMemory:
    """The memory of a process that has the state after a step, or none."""
    memory = RankMemory(folder)
    memory.serve(folder.parent)
    if step is not None:
        run = SmallRun()
        run.train(step)
        memory.keep(progress(step), run.states(), IDENTITY)
    return memory


def chosen(
    place: RankPlace, folder: Path, *, steps: tuple[int | None, ...], committed: int = -1, full: int | None = None
) -> tuple[int, int] | None:
    """Step and source of the state that a rank finds; `steps` is what each rank has, `full` a rank that cannot write it."""
    with in_group(place):
        memory = memory_of(folder / str(place.rank), step=steps[place.rank])
        with files_up_to(16) if place.rank == full else nullcontext():
            found = memory.newest(IDENTITY, committed=committed if place.rank == 0 else -1)
    return None if found is None else (found[0].progress.step, found[1])


@pytest.mark.parametrize(
    ("steps", "committed", "full", "expected"),
    [
        pytest.param((3, None), -1, None, (3, 0), id="one rank lost it"),
        pytest.param((None, 4), 2, None, (4, 1), id="rank 0 is new"),
        pytest.param((2, 4), 4, None, (4, 1), id="the newer one, as new as the checkpoint"),
        pytest.param((3, 3), 5, None, None, id="the checkpoint is newer"),
        pytest.param((None, None), 1, None, None, id="none has it"),
        pytest.param((None, 3), -1, 0, None, id="one rank has no room for it"),
    ],
)
def test_all_ranks_get_the_newest_state_that_one_of_them_has(
    tmp_path: Path, steps: tuple[int | None, ...], committed: int, full: int | None, expected: tuple[int, int] | None
) -> None:
    assert on_ranks(2, chosen, tmp_path, steps=steps, committed=committed, full=full) == [expected, expected]


def test_a_single_rank_needs_no_process_group_and_drops_the_state_of_another_run(tmp_path: Path) -> None:
    memory = memory_of(tmp_path / "memory", step=2)
    found = memory.newest(IDENTITY, committed=1)
    assert found is not None
    assert (found[0].progress.step, found[1]) == (2, 0)
    memory.serve(tmp_path)
    assert memory.step == 2
    memory.serve(tmp_path / "other")
    assert memory.step is None
