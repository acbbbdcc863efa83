"""What goes over the wire to moto: the operations in order, and answers put in their place."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from moto.core.botocore_stubber import BotocoreStubber

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body of an HTTP answer."""

READS = ("Describe", "List", "Get")
"""Beginnings of the operations that change nothing."""


@dataclass
class Wire:
    """The requests that reach AWS, and who answers them in its place.

    Attributes:
        operations: `service.Operation` of every request, retries included, in order.
        stand_in: gives the answer to an operation, or None to let moto answer; may raise.
    """

    operations: list[str] = field(default_factory=list)
    stand_in: Callable[[str], Answer | None] = lambda _: None
    _local: threading.local = field(default_factory=threading.local)

    def attach(self, session: Any) -> Any:  # noqa: ANN401 - boto3 has no types
        session.events.register_first("before-send", self._note)
        return session

    @property
    def changes(self) -> list[str]:
        return [one for one in self.operations if not one.partition(".")[2].startswith(READS)]

    def _note(self, event_name: str, **_: object) -> None:
        self._local.operation = event_name.removeprefix("before-send.")

    def answer(self) -> Answer | None:
        """Note the request of this thread, and answer it in moto's place or not."""
        operation = getattr(self._local, "operation", "sts.GetCallerIdentity")
        self.operations.append(operation)
        return self.stand_in(operation)


@contextmanager
def watched(wire: Wire) -> Iterator[Wire]:
    """Within the block every request to moto passes the wire, which starts empty; one at a time, because moto has no locks."""
    original, one_at_a_time = BotocoreStubber.process_request, threading.RLock()

    def process(stubber: BotocoreStubber, request: Any) -> Any:  # noqa: ANN401 - moto has no types
        answer = wire.answer()
        if answer is not None:
            return answer
        with one_at_a_time:
            return original(stubber, request)

    wire.operations.clear()
    wire.stand_in = lambda _: None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BotocoreStubber, "process_request", process)
        yield wire
    wire.stand_in = lambda _: None


def make_session(**settings: str) -> Any:  # noqa: ANN401 - boto3 has no types
    given = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x", **settings}
    return boto3.Session(**given)


def fault(code: str, status: int, *, protocol: str = "ec2") -> Answer:
    """An error as AWS sends it, by protocol of the service (botocore, `parsers`): ec2, query, s3 or json."""
    match protocol:
        case "ec2":
            error = f"<Errors><Error><Code>{code}</Code><Message>injected</Message></Error></Errors>"
            body = f"<Response>{error}<RequestID>1</RequestID></Response>"
        case "query":
            error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>injected</Message></Error>"
            body = f"<ErrorResponse>{error}<RequestId>1</RequestId></ErrorResponse>"
        case "s3":
            body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>"
        case _:
            body = json.dumps({"__type": code, "message": "injected"})
    return status, {}, body.encode()


@dataclass
class Faulty:
    """Answers an operation, `service.Operation`, with an error for the first `times` that it is asked for."""

    operation: str
    answer: Answer
    times: float = float("inf")

    def __call__(self, operation: str) -> Answer | None:
        if operation != self.operation or self.times <= 0:
            return None
        self.times -= 1
        return self.answer


@dataclass
class Before:
    """Does something, which may raise, right before the request that changes something with this number, from 1."""

    number: int
    act: Callable[[], object]

    def __call__(self, operation: str) -> None:
        if not operation.partition(".")[2].startswith(READS):
            self.number -= 1
            if self.number == 0:
                self.act()
