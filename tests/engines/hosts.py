"""Several hosts on one machine for tests, which are skipped where there can be none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from infra.spec.errors import RefusedError
from observability.benchmarks.hosts import Host
from observability.benchmarks.hosts import hosts as real_hosts
from tests.engines.report_table import ran, skipped

__all__ = ["Host", "hosts"]

NAME = "network namespaces"


@contextmanager
def hosts(count: int, *, rate: str | None = None) -> Iterator[Sequence[Host]]:
    """Create hosts while the context is open (`observability.benchmarks.hosts`); skips without the rights or the tools to create them."""
    with ExitStack() as undo:
        try:
            found = undo.enter_context(real_hosts(count, rate=rate))
        except RefusedError as error:
            skipped(NAME, error.args[0], error.remedy)
        ran(NAME)
        yield found
