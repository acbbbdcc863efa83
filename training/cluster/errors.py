"""The stack's errors as errors of the trainer's command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from infra.spec.errors import StackError
from training.errors import ExitStatus, PlatformError


@contextmanager
def in_our_manner() -> Iterator[None]:
    """Turn an error of the stack's parts into one that this command line prints, with the same exit status."""
    try:
        yield
    except StackError as error:
        own = PlatformError(str(error.args[0]), remedy=error.remedy)
        own.status = ExitStatus(error.status)
        raise own from error
