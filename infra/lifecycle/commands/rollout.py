"""Hold and release the queues of an environment."""

from __future__ import annotations

import os

from infra.kube.api import KubernetesApi
from infra.kube.stack_connection import connect
from infra.lifecycle.access.running import StackCluster
from infra.lifecycle.options import HoldOptions, QueuesOptions
from infra.lifecycle.rollout.hold import await_empty, say_stopped
from infra.lifecycle.rollout.jobs import running_jobs
from infra.lifecycle.rollout.queues import HoldMode, hold_queues, release_queues
from infra.lifecycle.show import print_line
from infra.spec.errors import RefusedError
from infra.spec.settings import load_environment
from infra.spec.stack_outputs import given_outputs


def hold(options: HoldOptions) -> int:
    """Hold the queues and wait until no job runs; they stay held until they are released, also if the wait fails."""
    api = _cluster(options)
    for job in running_jobs(api, has_progress=True):
        print_line(f"{job}{'; it saves, and resumes after the release' if options.drain else ''}")
    mode: HoldMode = "HoldAndDrain" if options.drain else "Hold"
    held = hold_queues(api, mode)
    if not held:
        print_line(f"{options.env} has no queue to hold")
        return 0
    print_line(f"queues held: {', '.join(held)}; release them: make release-queues ENV={options.env}")
    await_empty(api, mode, say=print_line, seconds=options.hours * 3600)
    print_line(f"{options.env}: no job runs")
    return 0


def release(options: QueuesOptions) -> int:
    """Release the queues that a command holds."""
    api = _cluster(options)
    released = release_queues(api)
    print_line(f"queues released: {', '.join(released)}" if released else f"no command holds a queue of {options.env}")
    say_stopped(api, say=print_line)
    return 0


def _cluster(options: QueuesOptions) -> KubernetesApi:
    settings = load_environment(options.env)
    given = given_outputs(options.env, file=options.outputs, environment=os.environ)
    if given is not None:
        return connect(given, kubeconfig=None, environment=os.environ)
    api = StackCluster(settings).api()
    if api is None:
        raise RefusedError(f"{options.env} has no cluster", remedy=f"bring it up: make up ENV={options.env}")
    return api
