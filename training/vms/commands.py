"""The commands of `training.cli` with `--ray`: on a Ray cluster of virtual machines."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.packages.requirements import read_requirements
from infra.spec.command_line import given_flags
from infra.spec.errors import RefusedError
from infra.spec.release import load_release
from observability.quantities import duration
from training.code.archive import CodeArchive
from training.code.given import configurations, files_of, given_code, importable
from training.config.load import load_settings, render
from training.errors import ExitStatus, SettingsError
from training.options.cluster import FollowOptions
from training.options.runs import JobsOptions, LogsOptions, StopOptions
from training.options.training import ResumeOptions, TrainOptions
from training.options.vms import check_machines
from training.vms.connection import HeadConnection, connected
from training.vms.place import RunPlace, read_place
from training.vms.settings import for_machines

if TYPE_CHECKING:
    from training.vms.jobs import RayJob, RayJobs


def train(options: TrainOptions) -> int:
    """Submit a run, follow it to its end, and mirror its exit status."""
    file, place = _cluster(options, options.ray)
    archive = given_code(options.code)
    _refuse_packages(archive)
    with importable(archive, with_packages=False) as code:
        config = configurations(options.config, code)
        written = load_settings(config, overrides=options.set, flags=options.flags(), environment={})
    settings = for_machines(written, place, now=datetime.now(UTC))
    if options.print_config:
        print(render(settings), end="")
        return ExitStatus.DONE
    assert settings.run.name is not None, "for_machines names the run"
    with _jobs(file, place) as (connection, jobs):
        name = settings.run.name
        job = jobs.submit(name, render(settings), archive, place, arguments=_arguments(file, name))
        return _finish(connection, jobs, job, file, options)


def resume(options: ResumeOptions) -> int:
    """Submit a run again, which resumes from its newest good checkpoint; follow it, and mirror its exit status."""
    file, place = _cluster(options, options.ray)
    archive = given_code(options.code)
    _refuse_packages(archive)
    with _jobs(file, place) as (connection, jobs):
        # A head that was started anew knows no job, and the folder of the runs still has the run.
        name = options.run or jobs.named(None).run
        job = jobs.resume(name, options.set, archive, place, arguments=_arguments(file, name))
        return _finish(connection, jobs, job, file, options)


def logs(options: LogsOptions) -> int:
    """Print the driver's log of a job and follow it to its end."""
    file, place = _cluster(options, options.ray)
    if options.rank is not None or options.pod is not None:
        log = f"{place.runs}/{options.run or 'NAME'}/logs/rank-{options.rank or 0}.jsonl"
        raise SettingsError(
            "the log of a rank is in its run's folder, which the machines share",
            remedy=shlex.join([".venv/bin/ray", "exec", str(file), f"cat {shlex.quote(log)}"]),
        )
    if "--days" in given_flags(options, ""):
        raise SettingsError(
            f"--days={options.days:g} is how far back the logs of pods are searched, and RAY=… (--ray) names machines",
            remedy="leave it out: the head has the whole log of a job as long as it runs",
        )
    with _jobs(file, place) as (connection, jobs):
        return _follow(connection, jobs, jobs.named(options.run), file, stop_on_interrupt=False)


def stop(options: StopOptions) -> ExitStatus:
    """Save the state of a run, end its job, and wait for both."""
    file, place = _cluster(options, options.ray)
    with _jobs(file, place) as (connection, jobs):
        job = jobs.named(options.run)
        if job.state.is_over:
            raise RefusedError(
                f"job {job.run} is already {job.state.stage}",
                remedy=f"resume its run: make resume {_arguments(file, job.run)}",
            )
        jobs.stop(job)
        print(f"job {job.run} is saving its state; resume its run: make resume {_arguments(file, job.run)}")
        if not options.detach:
            _follow(connection, jobs, job, file, stop_on_interrupt=False)
    return ExitStatus.DONE


def jobs(options: JobsOptions) -> ExitStatus:
    """Print the jobs of a cluster, newest first."""
    file, place = _cluster(options, options.ray)
    with _jobs(file, place) as (_, found):
        known = found.all()
    rows = [("run", "state", "age", "job")]
    rows += [(one.run or "-", one.state.stage, duration(time.time() - one.began), one.id) for one in known]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return ExitStatus.DONE


def _cluster(options: object, file: Path | None) -> tuple[Path, RunPlace]:
    assert file is not None, "without --ray the command is another one"
    check_machines(options)
    return file, read_place(file, platform=load_release().platform)


@contextmanager
def _jobs(file: Path, place: RunPlace) -> Iterator[tuple[HeadConnection, RayJobs]]:
    with connected(file, place) as connection:
        from training.vms.jobs import RayJobs  # noqa: PLC0415 - imports Ray, which reads its token then

        yield connection, RayJobs(connection.url)


def _follow(connection: HeadConnection, jobs: RayJobs, job: RayJob, file: Path, *, stop_on_interrupt: bool) -> int:
    from training.vms.follow import follow_to_exit  # noqa: PLC0415 - imports Ray

    return follow_to_exit(jobs, connection, job, hints=_hints(file, job), stop_on_interrupt=stop_on_interrupt)


def _finish(connection: HeadConnection, jobs: RayJobs, job: RayJob, file: Path, options: FollowOptions) -> int:
    print(f"job {job.run} submitted to the Ray cluster of {file}")
    if options.detach:
        print(_hints(file, job))
        return ExitStatus.DONE
    return _follow(connection, jobs, job, file, stop_on_interrupt=options.stop_on_interrupt)


def _arguments(file: Path, run: str) -> str:
    """What names a run on the command line."""
    return f"RAY={shlex.quote(str(file))} JOB={run}"


def _hints(file: Path, job: RayJob) -> str:
    named = _arguments(file, job.run)
    return f"  follow it: make logs {named}\n  stop it:   make stop {named}"


def _refuse_packages(archive: CodeArchive | None) -> None:
    """Refuse code with packages of its own: the machines' environment is the platform's lock."""
    if archive is None:
        return
    with files_of(archive) as folder:
        needed = read_requirements(folder)
    if needed:
        raise RefusedError(
            f"the code requires {', '.join(map(str, needed))}, and the machines have the packages of the lock only",
            remedy="train it on Kubernetes with an image of its own, or add the packages to the platform's lock",
        )
