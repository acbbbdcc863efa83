"""`make conformance ENV=…`: runs the suite on the cluster of an environment, shows the results, and exits with 0 or 1."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import time
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path

from infra.kube.stack_connection import connect
from infra.spec.output import writing
from infra.spec.signals import interrupting
from observability.quantities import money
from training.cluster.conformance import catalogue
from training.cluster.conformance.check import Result
from training.cluster.conformance.following import Limits
from training.cluster.conformance.job import SuiteJob, chosen_group, suite_job
from training.cluster.conformance.permissions import require
from training.cluster.conformance.results import junit, page, record, text
from training.cluster.conformance.results.summary import Summary
from training.cluster.conformance.runner import Runner
from training.cluster.conformance.suite import Suite
from training.cluster.context import ClusterContext
from training.cluster.steps import contexts_of
from training.cluster.uis.ui import Stack
from training.conformance.options import ConformanceOptions
from training.errors import ExitStatus, SettingsError

FOLDER = Path(".local", "conformance")
"""Folder of the results, with a folder for each environment."""

_PAGE = "report.html"


def conformance(options: ConformanceOptions) -> ExitStatus:
    """Run the suite.

    Returns:
        `DONE` if every check passed or was skipped for a reason that is allowed, else `FAILED`.

    Raises:
        PlatformError: there is no such stack or team, the caller lacks a permission, the stack cannot run the job, or the results
            cannot be written.
    """
    chosen = catalogue.chosen(options.only)
    _check_url(options.prometheus)
    print(f"reading the outputs of {options.env}", flush=True)
    context = contexts_of(options)[0]  # without --team the first: the checks are of the stack, and any team does
    _check_files(options)
    started = datetime.now(UTC)
    group = chosen_group(context, name=options.group, use_gpu=options.use_gpu)
    job = suite_job(context, group=group, now=started)
    api = connect(context.target.outputs, kubeconfig=options.kubeconfig, environment=os.environ)
    runner = Runner(chosen, _tell, allows_skips=not options.no_skips)
    require(api, context, runner, has_prometheus_url=options.prometheus is not None)
    print(_headline(context, job, checks=len(chosen)), flush=True)
    stack = Stack(
        env=context.env, target=context.target, api=api, kubeconfig=options.kubeconfig, environment=os.environ
    )
    suite = Suite(
        stack=stack,
        context=context,
        job=job,
        limits=Limits(admission=options.admission_minutes * 60, end=options.minutes * 60),
        runner=runner,
        prometheus_url=options.prometheus,
        keep=options.keep,
    )
    start = time.monotonic()
    try:
        with interrupting([signal.SIGTERM, signal.SIGHUP]):
            fakes = suite.run()
    except KeyboardInterrupt:
        print(f"\ninterrupted after {len(runner.results)} of {len(chosen)} checks", file=sys.stderr)
        return ExitStatus.INTERRUPTED
    summary = _summary(
        context,
        job,
        started=started,
        seconds=time.monotonic() - start,
        fakes=fakes,
        results=catalogue.in_order(runner.results),
    )
    _show(summary, options)
    return summary.status


def _tell(result: Result) -> None:
    print(text.progress_line(result), flush=True)


def _headline(context: ClusterContext, job: SuiteJob, *, checks: int) -> str:
    cluster, price = context.target.outputs.cluster, job.dollars_per_hour
    cost = "" if price is None else f", {money(price)} an hour"
    return f"{checks} checks of {context.env} ({cluster.name}); job {job.name} on {_nodes(job)}{cost}"


def _nodes(job: SuiteJob) -> str:
    shape = job.shape
    if job.group is None:
        return f"{shape.pods} pods of the head nodes, without GPUs"
    return f"{shape.pods} nodes of group {job.group.name} ({shape.instance_type}), {shape.gpus} GPUs each"


def _summary(
    context: ClusterContext, job: SuiteJob, *, started: datetime, seconds: float, fakes: str, results: list[Result]
) -> Summary:
    outputs = context.target.outputs
    return Summary(
        env=context.env,
        platform=outputs.platform,
        cluster=outputs.cluster.name,
        endpoint=outputs.cluster.endpoint,
        team=context.team.name,
        nodes=_nodes(job),
        job=job.name,
        fakes=fakes,
        started=started,
        seconds=seconds,
        results=results,
    )


def _show(summary: Summary, options: ConformanceOptions) -> None:
    """Print the table, and write record, page and, where it is asked for, JUnit's XML."""
    print(f"\n{text.table(summary)}")
    folder = FOLDER / summary.env
    history = record.earlier(folder, before=summary.started)
    with writing(folder):
        kept = record.keep(summary, folder)
    print(f"  record  {kept}")
    file = _page_file(options)
    with writing(file):
        page.write(page.page(summary, history), file)
    print(f"  page    {file}")
    if options.junit is not None:
        with writing(options.junit):
            options.junit.write_text(junit.junit(summary), encoding="utf-8")
        print(f"  JUnit   {options.junit}")


def _page_file(options: ConformanceOptions) -> Path:
    return options.html or FOLDER / options.env / _PAGE


def _check_files(options: ConformanceOptions) -> None:
    """Make the folders of the results before the suite runs, which may take an hour.

    Raises:
        SettingsError: a file could not be written.
    """
    for file in (_page_file(options), options.junit):
        if file is None:
            continue
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            with tempfile.TemporaryFile(dir=file.parent):
                pass


def _check_url(url: str | None) -> None:
    """Refuse an address that is none of HTTP's.

    Raises:
        SettingsError: it is not.
    """
    if url is None:
        return
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise SettingsError(
            f"--prometheus {url}: not an address of HTTP",
            remedy="name one like http://127.0.0.1:9090, without a path of the API",
        )
