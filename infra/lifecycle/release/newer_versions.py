"""Decide which newer versions the release may take: policy only, without a look-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.lifecycle.release.lock import Resolved
from infra.lifecycle.release.survey import Newer, Report
from infra.lifecycle.sandbox.modules import KUBERAY, KUEUE, Module
from infra.spec.errors import SettingsError
from infra.spec.release import ReleaseManifest
from infra.spec.release_rules import Project, findings
from infra.spec.section import validate
from infra.spec.yaml_text import KeyPath

TESTED: Mapping[KeyPath, Module] = {("charts", "kuberay-operator"): KUBERAY, ("charts", "kueue"): KUEUE}
"""Entries whose version is the one that the tests and the sandbox run."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A newer version of an entry.

    Attributes:
        report: the entry's report.
        newer: the newer version.
        held_back: why the release cannot take it; empty if it can.
    """

    report: Report
    newer: Newer
    held_back: tuple[str, ...]


def offers(release: ReleaseManifest, reports: Iterable[Report], *, project: Project) -> tuple[Offer, ...]:
    """Every newer version, with the rules that hold it back; those that nothing holds back also fit together.

    Args:
        release: the manifest.
        reports: the reports of its entries.
        project: versions in the project's files.
    """
    made: list[Offer] = []
    for report in reports:
        if report.newer is None:
            continue
        reasons = [*report.newer.held_back, *_untested(report)]
        candidate = release
        if not reasons:
            candidate, reasons = _with(release, report.newer.changes, project)
        if not reasons:
            release = candidate
        made.append(Offer(report=report, newer=report.newer, held_back=tuple(reasons)))
    return tuple(made)


def changes_of(made: Iterable[Offer]) -> tuple[Resolved, ...]:
    """The values of every offer that nothing holds back."""
    return tuple(change for offer in made if not offer.held_back for change in offer.newer.changes)


def _untested(report: Report) -> list[str]:
    module = TESTED.get(report.entry)
    if module is None or report.newer is None or report.newer.version.removeprefix("v") == module.version:
        return []
    return [f"the tests run {module.title} {module.version}: upgrade {module.name}/go.mod in the sandbox's engines"]


def _with(release: ReleaseManifest, changes: Iterable[Resolved], project: Project) -> tuple[ReleaseManifest, list[str]]:
    """The release with changes, and the rules that it breaks and the release does not."""
    document: dict[str, Any] = release.model_dump()
    for change in changes:
        node = document
        for key in change.path[:-1]:
            node = node[key]
        node[change.path[-1]] = change.value
    try:
        candidate = validate(ReleaseManifest, document, file="release")
    except SettingsError as error:
        return release, [str(error.args[0])]
    known = set(findings(release, project=project))
    return candidate, [str(one) for one in findings(candidate, project=project) if one not in known]
