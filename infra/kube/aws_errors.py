"""The refusal that a failed request to AWS leads to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from infra.spec.errors import RefusedError

_AT_MOST = 200
"""Characters of a page that is shown."""

_THROTTLED = re.compile(r"Throttl|TooManyRequests|RequestLimitExceeded|SlowDown")


def aws_refusal(message: str, error: Exception, *, remedy: str) -> RefusedError:
    """A refusal that tells a network without AWS, and an AWS that cannot answer for now, from credentials without rights.

    Args:
        message: what could not be done, if AWS answered or was not asked because there are no credentials.
        error: a `BotoCoreError`, `ClientError` or `ResponseParserError`.
        remedy: how to get credentials that can.
    """
    # Not in the trainer's environment. Both are bases: of errors of connecting, and of an established connection.
    from botocore.exceptions import ConnectionError as NoConnectionError  # noqa: PLC0415
    from botocore.exceptions import HTTPClientError  # noqa: PLC0415
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    if isinstance(error, ResponseParserError):
        said = " ".join(str(error).split())[:_AT_MOST]
        return RefusedError(
            f"{message}: an answer is not AWS's: {said}",
            remedy="repeat the command later; if it stays, look at the proxy (HTTPS_PROXY) that answers instead",
        )
    if isinstance(error, NoConnectionError | HTTPClientError):
        return RefusedError(
            f"AWS does not answer: {error}", remedy="check the network and its proxy (HTTPS_PROXY), then retry"
        )
    is_passing = _is_passing(getattr(error, "response", {}))
    return RefusedError(f"{message}: {error}", remedy="repeat the command later" if is_passing else remedy)


def _is_passing(response: Mapping[str, Any]) -> bool:
    """Whether AWS failed itself, or had too many requests."""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(response.get("Error", {}).get("Code", ""))
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or bool(_THROTTLED.search(code))
