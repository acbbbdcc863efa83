"""Faults of the bucket behind the run's folder, and of checkpoints in it. moto serves the S3 API, a proxy before it fails requests."""

from __future__ import annotations

import itertools
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

from observability.runlog import CheckpointUploaded, Event, Notice, Restored, read_all, select
from tests.engines.ray_cluster import short_folder
from tests.engines.s3 import S3Api, s3_server
from tests.engines.s3_faults import Fault as StoreFault
from tests.engines.s3_faults import FaultyS3, Request, faulty_s3
from tests.faults import injections as faults
from tests.faults.cell import Cell, Check, Fault, Inject, Settings, alone, fixed
from tests.faults.injections import STEP
from tests.faults.run import FaultedRun
from training.checkpoint.manifest import LOOP_STATE_FILE, MANIFEST_FILE
from training.checkpoint.store import FOLDER, committed_steps, folder_name, step_of
from training.config.schema import TrainingSettings

_LOOP = {"epochs": 60}
_LONG_LOOP = {"epochs": 200}
"""For runs that are killed after a number of uploads, which take as long as the machine is busy."""

_REFERENCE = fixed(alone(loop=_LOOP))
_FOLDER = "runs"
_UPLOADS = 2
"""Checkpoints that the bucket has when the run's folder is lost."""


class _BucketRun(FaultedRun):
    """A run with a bucket of its own."""

    api: S3Api
    proxy: FaultyS3

    def uploaded_steps(self) -> list[int]:
        """Steps of the checkpoints in the bucket, ascending."""
        manifests = [key for key in self.api.object_names() if key.endswith(MANIFEST_FILE)]
        return sorted(step for key in manifests if (step := step_of(key.split("/")[-2])) is not None)

    def newest_objects(self) -> list[str]:
        """Keys of the objects of the newest checkpoint in the bucket."""
        folder = f"{folder_name(self.uploaded_steps()[-1])}/"
        return [key for key in self.api.object_names() if folder in key]


@contextmanager
def _run_with_bucket(settings: TrainingSettings) -> Iterator[FaultedRun]:
    with short_folder() as folder, s3_server(folder) as api, faulty_s3(api) as proxy:
        checkpoint = settings.checkpoint.model_copy(update={"remote": f"s3://{api.bucket}/{_FOLDER}"})
        run = _BucketRun(
            settings.model_copy(update={"checkpoint": checkpoint}),
            folder,
            environment={**api.environment(), "AWS_ENDPOINT_URL": proxy.endpoint, "AWS_MAX_ATTEMPTS": "3"},
        )
        run.api, run.proxy = api, proxy
        with closing(run):
            yield run


def _with_bucket(*, loop: dict[str, int] = _LOOP, patience: float = 600.0) -> Settings:
    return fixed(alone(loop=loop, checkpoint={"remote_patience": patience}))


def _every_other(*statuses: int | str, when: Callable[[Request], bool] = lambda _request: True) -> StoreFault:
    """Every other request fails, with one status after the other."""
    numbers, failures = itertools.count(), itertools.cycle(statuses)

    def fault(request: Request) -> int | str | None:
        if not when(request) or next(numbers) % 2:
            return None
        return next(failures)

    return fault


def _fails(fault: StoreFault) -> Callable[[FaultedRun], float]:
    """The store fails like this from a step to the end of the run."""

    def inject(run: FaultedRun) -> float:
        assert isinstance(run, _BucketRun)
        run.wait_for_step(STEP)
        began = time.time()
        run.proxy.fault = fault
        return began

    return inject


def _is_away(run: FaultedRun) -> float:
    """The store refuses everything, until the run says so."""
    began = _fails(lambda _request: 503)(run)
    assert isinstance(run, _BucketRun)
    run.wait_for(lambda event: isinstance(event, Notice) and "SlowDown" in event.message)
    run.proxy.fault = lambda _request: None
    return began


def _has_the_newest(run: FaultedRun) -> None:
    """The bucket has the last checkpoint of the run, and requests have failed."""
    assert isinstance(run, _BucketRun)
    assert run.proxy.failed > 0
    assert run.uploaded_steps()[-1] == max(committed_steps(run.folder / FOLDER))


def _was_away(run: FaultedRun) -> None:
    _has_the_newest(run)
    messages = [notice.message for notice in select(read_all(run.folder), Notice)]
    assert sum("kept in the run's folder only" in message for message in messages) == 1
    assert sum("takes checkpoints again" in message for message in messages) == 1


def _was_given_up(run: FaultedRun) -> None:
    """The run did not wait for ever, and says what the bucket lacks."""
    assert isinstance(run, _BucketRun)
    assert max(run.uploaded_steps(), default=0) < max(committed_steps(run.folder / FOLDER))
    assert [one for one in select(read_all(run.folder), Notice) if one.level == "warning"]


def _lose_folder(damage: Callable[[_BucketRun], None] = lambda _run: None) -> Callable[[FaultedRun], float]:
    """SIGKILL of the driver, and all checkpoints of the run's folder are lost; those in the bucket are damaged."""

    def inject(run: FaultedRun) -> float:
        assert isinstance(run, _BucketRun)
        uploads: list[Event] = []

        def are_enough(event: Event) -> bool:
            if isinstance(event, CheckpointUploaded):
                uploads.append(event)
            return len(uploads) == _UPLOADS

        run.wait_for(are_enough)
        began = time.time()
        faults.kill_driver(run)
        shutil.rmtree(run.folder / FOLDER)
        damage(run)
        return began

    return inject


def _object(run: _BucketRun, name: str) -> str:
    """The key of a file of the newest checkpoint in the bucket."""
    (key,) = [key for key in run.newest_objects() if key.endswith(name)]
    return key


def _flip_a_bit(run: _BucketRun) -> None:
    key = max(run.newest_objects(), key=lambda key: len(run.api.read(key)))
    content = bytearray(run.api.read(key))
    content[len(content) // 2] ^= 1
    run.api.write(key, bytes(content))


def _truncate(name: str) -> Callable[[_BucketRun], None]:
    def damage(run: _BucketRun) -> None:
        content = run.api.read(key := _object(run, name))
        run.api.write(key, content[: len(content) // 2])

    return damage


def _remove(run: _BucketRun) -> None:
    run.api.remove(_object(run, LOOP_STATE_FILE))


def _came_from_the_bucket(run: FaultedRun) -> None:
    (restored,) = select(read_all(run.folder), Restored)
    assert restored.step > 0


def _failing(name: str, what: str, inject: Inject, check: Check, *, patience: float = 600.0) -> Cell:
    settings = _with_bucket(patience=patience)
    fault = Fault(what, f"step {STEP}")
    return Cell(name, fault, settings, inject, reference=_REFERENCE, most_lost=0, check=check, run_on=_run_with_bucket)


def _lost(name: str, what: str, damage: Callable[[_BucketRun], None] = lambda _run: None) -> Cell:
    return Cell(
        name,
        Fault(
            f"SIGKILL of the driver, the run's checkpoints lost{what}; resumed from the bucket", f"upload {_UPLOADS}"
        ),
        _with_bucket(loop=_LONG_LOOP),
        _lose_folder(damage),
        reference=fixed(alone(loop=_LONG_LOOP)),
        status=-signal.SIGKILL,
        check=_came_from_the_bucket,
        run_on=_run_with_bucket,
    )


_TORN: Final = _every_other("cut", when=lambda request: request.method == "PUT")
_NEWEST = "of the newest one in the bucket"

CELLS: Final = (
    _failing(
        "bucket-errors",
        "every other request to the bucket answered with 500 or 503",
        _fails(_every_other(500, 503)),
        _has_the_newest,
    ),
    _failing("bucket-torn-uploads", "every other upload cut off in its middle", _fails(_TORN), _has_the_newest),
    _failing("bucket-away", "the bucket refuses all requests, and takes them again later", _is_away, _was_away),
    _failing(
        "bucket-silent",
        "the bucket answers nothing any more; checkpoint.remote_patience=5",
        _fails(lambda _request: "hang"),
        _was_given_up,
        patience=5.0,
    ),
    _lost("folder-lost", ""),
    _lost("folder-lost-bit-flipped", f", and a bit {_NEWEST} flipped", _flip_a_bit),
    _lost("folder-lost-truncated", f", and a file {_NEWEST} truncated", _truncate(LOOP_STATE_FILE)),
    _lost("folder-lost-file-missing", f", and a file {_NEWEST} missing", _remove),
    _lost("folder-lost-manifest-truncated", f", and the manifest {_NEWEST} truncated", _truncate(MANIFEST_FILE)),
)
