"""Runs checks one after the other, and turns what goes wrong meanwhile into findings."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import replace

from infra.spec.errors import NotFoundError, PlatformError
from training.cluster.conformance.check import Check, Finding, NotApplicableError, Result, skipped, unknown


class Runner:
    """Makes the chosen checks, and keeps their results.

    Attributes:
        results: in the order in which the checks were made.
    """

    def __init__(
        self, chosen: Collection[Check], tell: Callable[[Result], object], *, allows_skips: bool = True
    ) -> None:
        """Make none yet.

        Args:
            chosen: the checks to make; others are passed over.
            tell: called with each result.
            allows_skips: whether a check may be skipped; otherwise it fails with the reason.
        """
        self._chosen, self._tell, self._allows_skips = frozenset(one.name for one in chosen), tell, allows_skips
        self.results: list[Result] = []

    def wants(self, *checks: Check) -> bool:
        """Whether one of these is to be made."""
        return any(one.name in self._chosen for one in checks)

    def make(self, check: Check, find: Callable[[], Finding], *, seconds: float = 0.0) -> None:
        """Make a check; what cannot be found out is a failure, not a pass.

        Args:
            check: the check.
            find: finds out.
            seconds: that finding its facts has taken already.
        """
        if not self.wants(check):
            return
        start = time.monotonic()
        finding = _finding(check, find)
        if finding.verdict == "skipped" and not self._allows_skips:
            finding = replace(finding, verdict="failed", found=f"skipped: {finding.found}")
        self.results.append(Result(check=check, finding=finding, seconds=seconds + time.monotonic() - start))
        self._tell(self.results[-1])


def _finding(check: Check, find: Callable[[], Finding]) -> Finding:
    try:
        return find()
    except NotApplicableError as reason:
        return skipped(str(reason), expected=check.title)
    except (PlatformError, NotFoundError) as error:
        return unknown(str(error.args[0]), expected=check.title)
    except Exception as error:  # noqa: BLE001 - whatever a server answers, the other checks are made and their results shown
        traceback.print_exc()
        return unknown(f"{type(error).__name__}: {error}", expected=check.title)
