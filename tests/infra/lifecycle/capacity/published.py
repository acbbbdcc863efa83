"""Answers of AWS that moto lacks, checked against the service models that AWS publishes with botocore."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from botocore import handlers, session
from botocore.awsrequest import AWSResponse
from botocore.loaders import create_loader
from botocore.model import OperationModel
from botocore.validate import ParamValidator
from moto import mock_aws

Tree = dict[str, Any]
ACCOUNT = "777788889999"
"""The account of the shipped environment `prod`."""

_LOADER = create_loader()
"""Shared by all sessions: the model of EC2 takes half a second to read."""


class Refused(NamedTuple):
    """An error that AWS answers with."""

    code: str
    message: str = "refused"


Answer = Tree | Refused | Callable[[Tree, str], "Tree | Refused"]
"""What an operation answers; a function gets the request's parameters and the region."""


class Published:
    """Answers by operation, and the requests that were made.

    Operations without an answer go to moto.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.requests: list[tuple[str, str, Tree]] = []
        self._parameters: Tree = {}

    def asked(self, operation: str) -> list[Tree]:
        """The parameters of every request of an operation."""
        return [parameters for name, _, parameters in self.requests if name == operation]

    def remember(self, params: Tree, **_: object) -> None:
        """Keep the parameters as the client was given them."""
        self._parameters = dict(params)

    def answer(self, model: OperationModel, context: Tree, **_: object) -> tuple[AWSResponse, Tree] | None:
        """Answer a request, or leave it to moto."""
        region = str(context["client_region"])
        self.requests.append((model.name, region, self._parameters))
        if model.name not in self.answers:
            return None
        answer = self.answers[model.name]
        found = answer(self._parameters, region) if callable(answer) else answer
        if isinstance(found, Refused):
            error = {"Error": {"Code": found.code, "Message": found.message}, "ResponseMetadata": {}}
            return AWSResponse("", 403, {}, None), error
        report = ParamValidator().validate(found, model.output_shape)
        assert not report.has_errors(), f"{model.name} never answers so: {report.generate_report()}"
        return AWSResponse("", 200, {}, None), {**found, "ResponseMetadata": {}}


@contextmanager
def published(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, Answer]) -> Iterator[Published]:
    """AWS with these answers, and moto for the rest, for every client made in the context."""
    found = Published(answers)
    ours = [("before-parameter-build.*.*", found.remember), ("before-call.*.*", found.answer)]
    with monkeypatch.context() as patch, mock_aws():
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # 1,300 images, of no use here
        patch.setattr(handlers, "BUILTIN_HANDLERS", [*handlers.BUILTIN_HANDLERS, *ours])
        patch.setattr(session, "create_loader", lambda _path: _LOADER)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "x")
        patch.delenv("AWS_PROFILE", raising=False)
        yield found
