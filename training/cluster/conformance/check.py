"""What a check is, and what it can find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One promise that the suite puts to the test.

    Attributes:
        name: its id, e.g. `nodes.gpus`.
        title: the promise in one sentence.
        needs_job: only the suite's job can answer it.
    """

    name: str
    title: str
    needs_job: bool = False


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found.

    Attributes:
        verdict: `skipped` where it does not apply; what could not be found out is `failed`.
        expected: what the promise amounts to here.
        found: what is so; of a skipped check, the reason.
    """

    verdict: Verdict
    expected: str
    found: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """The finding of a check, and the seconds that it took."""

    check: Check
    finding: Finding
    seconds: float


def judged(*, holds: bool, expected: str, found: str) -> Finding:
    """The finding of a check that could be made."""
    return Finding(verdict="passed" if holds else "failed", expected=expected, found=found)


def skipped(reason: str, *, expected: str) -> Finding:
    """The finding of a check that does not apply here."""
    return Finding(verdict="skipped", expected=expected, found=reason)


def unknown(reason: str, *, expected: str) -> Finding:
    """The finding of a check that could not be made although it applies; that is no pass."""
    return Finding(verdict="failed", expected=expected, found=f"not known: {reason}")


class NotApplicableError(Exception):
    """A check does not apply here; the message is the reason."""
