"""`python -m tune search --env`: a search as one job of a cluster, from the command line to its submission and its next driver.

The job's name is the search's. Its folder is on the team's storage, so a job that is preempted, restarted or submitted again
continues the search.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.spec.cluster_names import SEARCHES_PATH
from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.capacity_end import lasting_capacity
from platform_charts.jobs.placement import place_job
from platform_charts.jobs.price import usd_per_hour
from platform_charts.jobs.rayjob import is_search
from platform_charts.jobs.request import JobRequest, Target, timed_name
from training.cluster import commands, control, job_manifest
from training.cluster.code_packages import require_image
from training.cluster.context import ClusterContext
from training.cluster.job_manifest import JobOptions
from training.cluster.job_settings import for_cluster
from training.cluster.objects import RAY_JOB
from training.cluster.own_code import kept_code, packed
from training.cluster.steps import connection_of, context_of
from training.code.archive import CodeArchive
from training.code.given import given_code, importable
from training.config.load import render
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, SettingsError
from tune.config import SearchConfiguration, configuration_files, render_search
from tune.options import SearchOptions
from tune.resources import ACTOR_BYTES, check_scale, sharers
from tune.settings import SearchSettings

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_MIB = 2**20


def search(options: SearchOptions) -> int:
    """Submit a search as a job and mirror its exit status, or write the objects of the job as YAML.

    If the job has ended or was stopped, it is submitted again: with the settings and the code that it had, as far as the
    command line names no others, and with the changes of the command line. The search continues in its folder.

    Raises:
        PlatformError: the search, its job, or its name is refused, or the cluster cannot be reached.
    """
    archive = given_code(options.code)
    context = context_of(options)
    job_options = commands.job_options(options)
    if options.print_config:
        print(_text(*_load(options, context, archive)), end="")
        return ExitStatus.DONE
    if options.out is not None:
        return commands.write_yaml(_rendered(options, context, archive, job_options), options.out)
    api = connection_of(context, options)
    earlier = _ended_job(api, context, options.name)
    if earlier is None:
        manifests = _rendered(options, context, archive, job_options)
    else:
        kept = None if options.config else commands.kept_settings(api, context, earlier)
        archive = archive or kept_code(api, earlier)
        job_options = job_options.or_else(job_manifest.options_of(earlier))
        manifests = _rendered(options, context, archive, job_options, kept=kept)
        control.remove(api, earlier, *job_manifest.config_maps(earlier))
    return commands.submit(api, context, manifests, options, code=options.code)


def _ended_job(api: KubernetesApi, context: ClusterContext, name: str | None) -> Manifest | None:
    """The job of a search that was stopped or has ended. Whoever submits under another name that is taken is refused later."""
    if name is None:
        return None
    found = api.read(api_object(*RAY_JOB, name, namespace=context.team.namespace))
    is_over = found is not None and is_search(found) and commands.job_state(api, context, name).is_over
    return found if is_over else None


def _rendered(
    options: SearchOptions,
    context: ClusterContext,
    archive: CodeArchive | None,
    job_options: JobOptions,
    *,
    kept: str | None = None,
) -> tuple[Manifest, ...]:
    """The objects of the job, after everything that can be checked without its nodes.

    Args:
        options: the command line.
        context: stack and team.
        archive: the user's own code.
        job_options: options of the job.
        kept: the settings that an earlier job of the search had, as YAML.
    """
    require_image(options.code, context, image=job_options.image)
    configuration, shared = _load(options, context, archive, kept=kept)
    trial = job_manifest.request_of(shared, team=context.team.name, options=job_options, code=packed(archive))
    request = search_request(trial, shared, configuration.search)
    search = priced(configuration.search, request, shared.scale.workers, context.target)
    search.stop.check_price()
    text = _text(replace(configuration, search=search), shared)
    return commands.render_request(replace(request, settings_yaml=text), context)


def _load(
    options: SearchOptions, context: ClusterContext, archive: CodeArchive | None, *, kept: str | None = None
) -> tuple[SearchConfiguration, TrainingSettings]:
    """The search, checked as on one machine, and the settings that its trials share on the cluster.

    Raises:
        SettingsError: the space, the scheduler or the settings are invalid, the number of concurrent trials is missing, or the pods
            cannot read the dataset's files.
    """
    with importable(archive, with_packages=False) as code, tempfile.TemporaryDirectory() as folder:
        files = configuration_files(options.config, code)
        if kept is not None:
            file = Path(folder, f"{options.name}-settings.yaml")
            file.write_text(kept, encoding="utf-8")
            files = [file]
        configuration = SearchConfiguration.of_options(options, files, environment={})
        configuration.check()
        shared = configuration.shared
        _check_concurrency(configuration.search, shared)
        now = datetime.now(UTC)
        name = shared.run.name or timed_name("search", now=now)
        named = shared.model_copy(update={"run": shared.run.model_copy(update={"name": name})})
        on_cluster = for_cluster(named, context.target.outputs, team=context.team, now=now)
        # A search keeps the checkpoints of its trials itself.
        return configuration, on_cluster.model_copy(update={"checkpoint": named.checkpoint})


def _check_concurrency(search: SearchSettings, shared: TrainingSettings) -> None:
    if search.concurrency is None:
        size = f"{shared.scale.workers} {'GPU' if shared.scale.gpu else 'pod'}{'s' * (shared.scale.workers != 1)}"
        raise SettingsError(
            f"search.concurrency is not set: on a cluster it says how many trials, of {size} each, run at the same time",
            remedy="--set search.concurrency=4, for example",
        )


def _text(configuration: SearchConfiguration, shared: TrainingSettings) -> str:
    """All settings as the driver reads them."""
    search = configuration.search.model_copy(update={"directory": Path(SEARCHES_PATH)})
    return render(shared) + render_search(search)


def search_request(request: JobRequest, shared: TrainingSettings, search: SearchSettings) -> JobRequest:
    """The request for the job of a search, from that of one of its trials, whose settings it still has.

    Args:
        request: of a job that trains one trial.
        shared: the settings that the trials share.
        search: the `search` section, with `concurrency`.

    Raises:
        SettingsError: see `check_scale`.
    """
    concurrent = _concurrent(search)
    share = check_scale(shared.scale, search)
    per_gpu = sharers(share) if 0 < share < 1 else 1
    return replace(
        request,
        kind="search",
        worker_groups=math.ceil(concurrent / per_gpu),
        cpus_per_worker=request.cpus_per_worker * min(per_gpu, concurrent),
        driver_memory_mib=concurrent * ACTOR_BYTES // _MIB,
    )


def priced(search: SearchSettings, request: JobRequest, workers: int, target: Target) -> SearchSettings:
    """The search with the price of a worker, if none is set and the GPUs of the job have one.

    Args:
        search: the `search` section, with `concurrency`.
        request: of the search's job.
        workers: of a trial.
        target: where the job runs.
    """
    if search.stop.dollars_per_worker_hour is not None:
        return search
    lasting = lasting_capacity(request, target, now=datetime.now(UTC))
    price = usd_per_hour(place_job(request, lasting), lasting)
    if price is None:
        return search
    stop = search.stop.model_copy(update={"dollars_per_worker_hour": price / (_concurrent(search) * workers)})
    return search.model_copy(update={"stop": stop})


def _concurrent(search: SearchSettings) -> int:
    """How many trials run at the same time."""
    assert search.concurrency is not None, "checked before"
    return min(search.concurrency, search.trials)
