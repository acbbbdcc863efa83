"""Requests to AWS, with a reason in words where it gives no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    LoginError,
    NoCredentialsError,
    SSOError,
    TokenRetrievalError,
)

from infra.kube.aws_errors import aws_refusal
from infra.lifecycle.capacity.offers import NotKnown

T = TypeVar("T")

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_NO_CREDENTIALS = (CredentialRetrievalError, LoginError, NoCredentialsError, SSOError, TokenRetrievalError)
"""What botocore raises if it cannot renew credentials that have expired."""
_DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
_NOT_ENABLED = frozenset({"AuthFailure", "OptInRequired", "UnrecognizedClientException", "InvalidClientTokenId"})
"""What a region that is not enabled for an account answers to credentials that are valid elsewhere, as these are: the account's
identity has been read with them."""
_THROTTLED = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"})
_NO_NEW_SCORES = "MaxConfigLimitExceeded"
"""EC2 limits the number of different requests for placement scores in 24 hours, and answers earlier ones still."""


def ask(action: str, request: Callable[[], T]) -> T | NotKnown:
    """What a request returns, or why AWS gives no answer.

    Args:
        action: the IAM action that the request needs.
        request: sends it.

    Raises:
        RefusedError: the credentials have expired.
    """
    try:
        return request()
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code in _EXPIRED:
            raise aws_refusal(
                "AWS refuses the credentials", error, remedy="sign in again, e.g. `aws sso login`"
            ) from error
        # `request` may send several; the error knows which one was refused.
        return NotKnown(_reason(f"{action.partition(':')[0]}:{error.operation_name}", code, error))
    except _NO_CREDENTIALS as error:
        raise aws_refusal("no valid AWS credentials", error, remedy="sign in again, e.g. `aws sso login`") from error
    except BotoCoreError as error:
        return NotKnown(f"AWS does not answer {action}: {' '.join(str(error).split())}")


def _reason(action: str, code: str, error: ClientError) -> str:
    if code in _DENIED:
        return f"access denied, needs {action}"
    if code in _NOT_ENABLED:
        return f"the region refuses the credentials ({code}); it may not be enabled for the account"
    if code in _THROTTLED:
        return f"AWS throttles {action} ({code}); try again in some minutes"
    if code == _NO_NEW_SCORES:
        return f"{action} answers no other question within 24 hours ({code}); repeat an earlier search, or try again tomorrow"
    return f"{action}: {code}: {' '.join(str(error.response['Error'].get('Message', '')).split())}"
