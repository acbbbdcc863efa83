"""Report how account and cluster differ from what the stack made."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.lifecycle.commands.case import connected, ready_case
from infra.lifecycle.drift.account import compare_previews, undeployed
from infra.lifecycle.drift.cluster import compare, objects_of_state
from infra.lifecycle.drift.difference import Difference
from infra.lifecycle.drift.helm import installed_objects
from infra.lifecycle.options import DriftOptions
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.show import print_line
from infra.lifecycle.stack import pulumi_cli
from infra.lifecycle.stack.state import export_state
from infra.spec.errors import ExitStatus, PlatformError


def drift(options: DriftOptions) -> int:
    """Print every difference; fails if there is one, or if something could not be compared."""
    case = ready_case(options.env)
    state = export_state(options.env)
    with connected(case, say=_say_beside_json if options.json else print_line):
        plain = pulumi_cli.preview_document(options.env)
        refreshed = pulumi_cli.preview_document(options.env, refreshes=True)
        found = sorted([*compare_previews(plain, refreshed), *_in_cluster(case, state)])
    waiting = undeployed(plain)
    if options.json:
        is_complete = not any(one.kind == "unknown" for one in found)
        differences = [one.dump() for one in found]
        document = {"environment": options.env, "is_complete": is_complete, "differences": differences}
        print_line(json.dumps({**document, "undeployed": waiting}, indent=2))
    else:
        _print(options.env, found, waiting)
    return ExitStatus.FAILED if found else ExitStatus.DONE


def _say_beside_json(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(environment: str, found: Sequence[Difference], waiting: int) -> None:
    for one in found:
        print_line(str(one))
    if waiting:
        print_line(
            f"note: the program would change {waiting} resource{'s' * (waiting != 1)}; that is no drift, "
            f"`make preview ENV={environment}` shows it"
        )
    remedy = f"; `make up ENV={environment}` takes them back" if found else ""
    print_line(f"{environment}: {len(found) or 'no'} difference{'s' * (len(found) != 1)}{remedy}")


def _in_cluster(case: Case, state: Mapping[str, Any]) -> Iterator[Difference]:
    api = case.cluster.api()
    if api is None:
        return
    try:
        yield from compare(api, objects_of_state(state))
        yield from compare(api, installed_objects(api))
    except PlatformError as error:
        # What is left could not be compared.
        yield Difference(where="cluster", resource="API server", kind="unknown", paths=(str(error.args[0]),))
