"""Runs `pulumi` on a stack in the foreground."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from infra.lifecycle.stack.lock import locked_error, says_locked
from infra.policy.tokens import STACK
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.release_rules import ROOT
from infra.spec.signals import ENDINGS, handling
from infra.spec.stack_outputs import ask_pulumi, find_pulumi

POLICY_PACK = "infra/policy"


def preview_document(
    environment: str, *, has_policies: bool = False, refreshes: bool = False, excluded: Sequence[str] = ()
) -> Mapping[str, Any]:
    """What an update would do, step by step, also to resources that stay the same (pulumi, pkg/backend/display/json.go).

    Args:
        environment: name of the stack.
        has_policies: whether a broken policy fails the preview.
        refreshes: compare with what there is, and not with the state.
        excluded: URNs to leave out.

    Raises:
        PlatformError: the preview failed; carries its message.
    """
    more = [*(("--policy-pack", POLICY_PACK) if has_policies else ()), *(("--refresh",) if refreshes else ())]
    more += [part for urn in excluded for part in ("--exclude", urn)]
    try:
        found: Mapping[str, Any] = json.loads(ask_pulumi(environment, "preview", "--json", "--show-sames", *more))
    except json.JSONDecodeError as error:
        raise PlatformError(f"pulumi preview --json printed no JSON: {error}") from error
    return found


def shown_preview(
    environment: str, *, refreshes: bool = False, excluded: Sequence[str] = ()
) -> tuple[int, Mapping[str, Any]]:
    """Preview an update in the foreground, with the policy pack.

    The program runs once for what a person sees and for what the commands read, from the log of the engine's events.

    Args:
        environment: name of the stack.
        refreshes: compare with what there is, and not with the state.
        excluded: URNs to leave out.

    Returns:
        pulumi's exit status, and what the update would do as `preview_document` has it.

    Raises:
        RefusedError: the stack is locked.
        KeyboardInterrupt: a signal came meanwhile; pulumi has ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "events")
        command = partial(run, "preview", environment=environment, is_confirmed=False)
        status = command(refreshes=refreshes, excluded=excluded, event_log=log)
        events = map(json.loads, log.read_text(encoding="utf-8").splitlines()) if log.exists() else ()
        return status, {"steps": list(_steps(events))}


def _steps(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Steps of events (pulumi, sdk/go/common/apitype/events.go); that of the stack has the outputs that it would have."""
    steps: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        for kind in ("resourcePreEvent", "resOutputsEvent"):
            if one := event.get(kind, {}).get("metadata"):
                changed = {"diffReasons": one.get("diffs"), "replaceReasons": one.get("keys")}
                states = {"oldState": one.get("old"), "newState": one.get("new")}
                step = {
                    "urn": one["urn"],
                    "op": one["op"],
                    **states,
                    **changed,
                    "detailedDiff": one.get("detailedDiff"),
                }
                if kind == "resourcePreEvent" or one["type"] == STACK:
                    steps[one["urn"], one["op"]] = step
    yield from steps.values()


def is_unchanged(preview: Mapping[str, Any]) -> bool:
    """Whether an update would change no resource and no output."""
    return bool(preview["steps"]) and all(_stays(one) for one in preview["steps"])


def _stays(step: Mapping[str, Any]) -> bool:
    old, new = (step.get(state) or {} for state in ("oldState", "newState"))
    is_output_changed = ":pulumi:Stack::" in step["urn"] and old.get("outputs") != new.get("outputs")
    return step["op"] in {"same", "read", "refresh"} and not is_output_changed


def run(
    command: str,
    *,
    environment: str,
    is_confirmed: bool,
    targets: Sequence[str] = (),
    excluded: Sequence[str] = (),
    refreshes: bool = False,
    is_previewed: bool = False,
    event_log: Path | None = None,
) -> int:
    """Run `preview`, `up` or `destroy` on a stack in the foreground; a whole preview or up with the policy pack.

    Policies see resources that are left out without their properties, and would report most of them.

    Ctrl-C reaches pulumi as well, which ends what it has begun. Nobody may close the tunnel or release the queues before.

    Args:
        command: Pulumi's command.
        environment: name of the stack.
        is_confirmed: do not ask for confirmation.
        targets: patterns of URNs to limit the command to; empty: all.
        excluded: URNs to leave out.
        refreshes: read first what there is: without it, an update compares with the state, and leaves what others have changed.
        is_previewed: a person has seen the preview: do not repeat it.
        event_log: file for the engine's events.

    Returns:
        pulumi's exit status.

    Raises:
        RefusedError: the stack is locked, or Pulumi would ask for a confirmation and nobody is there.
        KeyboardInterrupt: a signal came meanwhile; pulumi has ended.
    """
    arguments = [find_pulumi(), command, "--cwd", str(ROOT), "--stack", environment]
    arguments += [part for target in targets for part in ("--target", target)]
    arguments += [part for urn in excluded for part in ("--exclude", urn)]
    if refreshes:
        arguments.append("--refresh")
    if is_previewed:
        arguments.append("--skip-preview")
    if event_log is not None:
        arguments += ["--event-log", str(event_log)]
    if command != "destroy" and not targets and not excluded:
        arguments += ["--policy-pack", POLICY_PACK]
    if command != "preview":
        arguments += _confirmation(command, is_confirmed=is_confirmed)
    locked, signals = "", list[signal.Signals]()
    # Pulumi asks and shows progress on stdin and stdout, which stay the terminal's.
    with (
        handling(ENDINGS, signals.append),
        subprocess.Popen(arguments, env=_environment(), stderr=subprocess.PIPE, text=True) as pulumi,
    ):
        assert pulumi.stderr is not None, "it is a pipe"
        for line in pulumi.stderr:
            if locked or says_locked(line):
                locked += line
            else:
                sys.stderr.write(line)
    if signals:
        raise KeyboardInterrupt
    if locked:
        raise locked_error(environment, locked)
    return pulumi.returncode


def _confirmation(command: str, *, is_confirmed: bool) -> Sequence[str]:
    """The option without which Pulumi asks; a question that nobody would see is refused, because Pulumi's refusal names that option."""
    if not is_confirmed and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RefusedError(
            f"nothing was changed: there is no terminal to confirm `pulumi {command}` at", remedy="set YES=1"
        )
    return ("--yes",) if is_confirmed else ()


def _environment() -> Mapping[str, str]:
    """With the option `--event-log`, which Pulumi's Automation API uses in the same way."""
    return {**os.environ, "PULUMI_DEBUG_COMMANDS": "true"}


def end_orphans() -> int:
    """End the Kubernetes providers on this machine whose engine was killed; returns how many there were.

    They go on for up to five minutes (pulumi, sdk/go/pulumi-language-*, `Healthcheck`), and one whose installation then fails uninstalls
    the release, also if an update has taken it over meanwhile.
    """
    listed = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=False
    ).stdout
    found = list(_orphans(listed))
    for process in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    return len(found)


def _orphans(listed: str) -> Iterator[int]:
    """Processes among the lines of ID, parent and arguments; one that a person debugs has no engine's address."""
    rows = {
        int(process): (int(parent), words) for process, parent, *words in map(str.split, listed.splitlines()) if words
    }
    programs = {process: PurePath(words[0]).name for process, (_, words) in rows.items()}
    for process, (parent, words) in rows.items():
        is_of_engine = programs[process] == "pulumi-resource-kubernetes" and re.fullmatch(r"[\d.]+:\d+", words[-1])
        if is_of_engine and programs.get(parent) != "pulumi":
            yield process
