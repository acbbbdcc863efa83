"""Prints the logs of a job's pods that are gone, from the store that the stack ships logs to."""

from __future__ import annotations

import os
import sys

from infra.spec.errors import PlatformError, RefusedError
from training.cluster.context import ClusterContext
from training.cluster.shipped_logs import LogStore, find_lines, log_store_of
from training.cluster.shipped_query import LogQuery


def print_gone(context: ClusterContext, query: LogQuery, *, live: PlatformError) -> None:
    """Print the lines on standard output, the newest pod's first, and a heading for each pod on standard error.

    Args:
        context: the stack.
        query: the lines.
        live: why the cluster has no such log.

    Raises:
        PlatformError: `live`, where the stack ships no logs; or the store has no such line, or is not reachable.
    """
    store = log_store_of(context.target.outputs, environment=os.environ)
    if store is None:
        raise live
    try:
        is_found = _print_found(store, query)
    except RefusedError as error:
        remedies = "; ".join(remedy for remedy in (error.remedy, live.remedy) if remedy)
        raise RefusedError(f"{live.args[0]}; {error.args[0]}", remedy=remedies) from error
    if not is_found:
        raise RefusedError(
            f"{live.args[0]}; {store.place} has no such line since {query.since:%Y-%m-%d %H:%M} UTC",
            remedy=f"look further back with DAYS=…; {live.remedy}".rstrip("; "),
        )


def _print_found(store: LogStore, query: LogQuery) -> bool:
    found = find_lines(store, query)
    for attempt in found.attempts:
        print(f"pod {attempt.pod}, {attempt.first:%Y-%m-%d %H:%M:%S} to {attempt.last:%H:%M:%S} UTC", file=sys.stderr)
        sys.stderr.flush()
        print("\n".join(attempt.lines), flush=True)
    if not found.is_complete:
        print(f"warning: the search in {store.place} was cut short, lines may be missing", file=sys.stderr)
    return bool(found.attempts)
