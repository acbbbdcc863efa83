"""Attends a job from the command line: follows it, answers Ctrl-C, and mirrors its end as an exit status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from infra.spec.manifest import Manifest
from training.cluster import control
from training.cluster.api import Api
from training.cluster.driver_log import DriverLog
from training.cluster.follow import follow
from training.cluster.rendering import describe_size
from training.cluster.scene import Scene
from training.cluster.view import JobView
from training.cluster.watch import JobWatch
from training.errors import ExitStatus


def attend(api: Api, scene: Scene, found: Manifest, *, stops_on_interrupt: bool) -> ExitStatus:
    """Follow a job to its end. An interrupt leaves it running and says so, or stops it where that was asked for."""
    name = found["metadata"]["name"]
    watch = JobWatch(api, namespace=scene.team.namespace, name=name)
    view = JobView(sys.stdout, is_terminal=sys.stdout.isatty())
    log = DriverLog(api, watch)
    log.start()
    with _terminating_as_interrupt():
        try:
            try:
                state = follow(watch, log, view)
            except KeyboardInterrupt:
                if not stops_on_interrupt:
                    raise
                control.stop(api, found)
                view.say(f"job {name} saves its state and gives its nodes back; once more leaves it to do so alone")
                state = follow(watch, log, view)
        except KeyboardInterrupt:
            view.close()
            view.say(
                f"job {name} goes on without this command ({describe_size(found)})\n"
                f"  follow it: {scene.hint('logs', name)}\n  stop it:   {scene.hint('stop', name)}",
                tone="warning",
            )
            return ExitStatus.INTERRUPTED
        finally:
            view.close()
    if state.remedy:
        print(f"  remedy: {state.remedy}")
    assert state.status is not None, "a job is followed to its end"
    return state.status


@contextmanager
def _terminating_as_interrupt() -> Iterator[None]:
    """SIGTERM, by which CI cancels a command, is answered as Ctrl-C is."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
