"""`make profile NAME=run`: asks a running run for a profile, waits for it, and prints the verdict. Jobs: `training.cluster.profile`."""

from __future__ import annotations

import time

from observability.profiling.analysis import Analysis, analyse, kept_analysis, run_figures
from observability.profiling.text import describe
from observability.profiling.window import ProfileError, ProfileFolder
from observability.runlog import ProfileAnswered, RunLogReader, select
from training.errors import ExitStatus, PreflightError
from training.options.runs import ProfileOptions
from training.profiling.request import ProfileRequest, RequestFile
from training.rundir import RunDirectory

_POLL_SECONDS = 0.2


def profile(options: ProfileOptions) -> ExitStatus:
    """Profile a run that is running, or show the newest profile of one that has ended; with `--env` a job.

    Raises:
        SettingsError: there is no such run or job, or the job has no trainer.
        RefusedError: it has ended without a profile, before or meanwhile, or refused the request.
    """
    request = ProfileRequest(steps=options.steps, memory=options.memory)
    if options.env is not None:
        from training.cluster.profile import profile_job  # noqa: PLC0415 - brings the Kubernetes client

        return profile_job(options, request)
    run = RunDirectory.open(options.run, root=options.root) if options.run else RunDirectory.newest(options.root)
    found = _record(run, request) if run.is_running() else _newest(run)
    print(describe(found, run=str(run.path)))
    return ExitStatus.DONE


def _newest(run: RunDirectory) -> Analysis:
    profiles = ProfileFolder.all_of(run.path)
    if not profiles:
        raise PreflightError(
            f"run {run.name} is not running, and none of its steps were profiled",
            remedy="profile a run while it trains, or train one with a profile: make profile",
        )
    return kept_analysis(run.path) or _analysed(run, profiles[-1])


def _record(run: RunDirectory, request: ProfileRequest) -> Analysis:
    """Ask for a profile, and wait until every rank has written its part."""
    file = RequestFile(run.path)
    log = RunLogReader(run.path, offset=run.events.stat().st_size if run.events.exists() else 0)
    file.make(request)
    print(f"{run.name} profiles {request.steps} of its next steps …", flush=True)
    step: int | None = None
    try:
        while True:
            was_running = run.is_running()
            step = _accepted(log, request, run) or step
            if step is not None and (profile := ProfileFolder.of_step(run.path, step)).is_complete():
                return _analysed(run, profile)
            if not was_running:
                raise PreflightError(
                    f"run {run.name} ended before {request.steps} of its steps were profiled",
                    remedy=f"make profile NAME={run.argument} shows what there is; or train one with a profile: make profile",
                )
            time.sleep(_POLL_SECONDS)
    finally:
        file.withdraw()


def _accepted(log: RunLogReader, request: ProfileRequest, run: RunDirectory) -> int | None:
    """The first step of the profile, once the log says that it is recorded."""
    for answer in select(log.read_new(), ProfileAnswered):
        if answer.request == request.id and answer.state == "refused":
            raise PreflightError(
                f"run {run.name} refuses the request: {answer.text}",
                remedy=f"make monitor NAME={run.argument} shows where it is",
            )
        if answer.request == request.id:
            return answer.step
    return None


def _analysed(run: RunDirectory, chosen: ProfileFolder) -> Analysis:
    try:
        return analyse(chosen, run_figures(run.path))
    except ProfileError as error:
        raise PreflightError(
            f"the profile of run {run.name} cannot be read: {error}", remedy="profile the run again while it trains"
        ) from error
