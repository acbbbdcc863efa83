"""`make profile NAME=run`: asks a running run for a profile, waits for it, and prints the verdict."""

from __future__ import annotations

import time

from observability.profiling.analysis import Analysis, analyse, kept_analysis, run_figures
from observability.profiling.text import describe
from observability.profiling.window import ProfileError, ProfileFolder
from training.errors import ExitStatus, PreflightError, SettingsError
from training.options import ProfileOptions
from training.profiling.request import ProfileRequest
from training.rundir import RunDirectory

_POLL_SECONDS = 0.2


def profile(options: ProfileOptions) -> ExitStatus:
    """Profile a run that is running, or show the newest profile of one that has ended.

    Raises:
        SettingsError: the run is a job on a cluster, or does not exist.
        PreflightError: it has ended without a profile, before or meanwhile.
    """
    if options.env is not None:
        raise SettingsError(
            f"job {options.run or ''} cannot be asked for a profile: nobody may run commands in the pods of a job".replace(
                "  ", " "
            ),
            remedy="profile it from a step on: make resume or make profile with ENV=… SET=profile.start_step=N; its report has the verdict",
        )
    run = RunDirectory.open(options.run, root=options.root) if options.run else RunDirectory.newest(options.root)
    found = _record(run, options.steps) if run.is_running() else _newest(run)
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


def _record(run: RunDirectory, steps: int) -> Analysis:
    """Ask for a profile, and wait until every rank has written its part."""
    request, earlier = ProfileRequest(run.path), set(ProfileFolder.all_of(run.path))
    request.make(steps)
    print(f"{run.name} profiles {steps} of its next steps …", flush=True)
    try:
        while True:
            was_running = run.is_running()
            new = [one for one in ProfileFolder.all_of(run.path) if one not in earlier]
            if new and not new[0].missing_ranks():
                return _analysed(run, new[0])
            if not was_running:
                raise PreflightError(
                    f"run {run.name} ended before {steps} of its steps were profiled",
                    remedy=f"make profile NAME={run.argument} shows what there is; or train one with a profile: make profile",
                )
            time.sleep(_POLL_SECONDS)
    finally:
        request.withdraw()


def _analysed(run: RunDirectory, chosen: ProfileFolder) -> Analysis:
    try:
        return analyse(chosen, run_figures(run.path))
    except ProfileError as error:
        raise PreflightError(
            f"the profile of run {run.name} cannot be read: {error}", remedy="profile the run again while it trains"
        ) from error
