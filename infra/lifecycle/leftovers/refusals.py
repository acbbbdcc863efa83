"""What an error of AWS means for a removal: already gone, in use for now, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

Item = TypeVar("Item")

AWS_ERRORS = (BotoCoreError, ClientError, ResponseParserError)
"""What a call raises: AWS refuses it, or does not answer, or something in between answers with a page of its own."""

_GONE = re.compile(
    r"NotFound|NoSuch|DoesNotExist|NonExistent|^404$|^InvalidAllocationID|^InvalidAssociationID|^Gateway\.NotAttached$"
    r"|^InvalidPlacementGroup\.Unknown$"
)
_GONE_MESSAGE = re.compile(r"not found|does not exist|is pending deletion", re.IGNORECASE)
_VAGUE = frozenset({"ValidationError", "InvalidParameterValue", "KMSInvalidStateException", "KMSInvalidState"})
"""Codes whose message says whether the resource is gone: of EC2 Auto Scaling, EKS and KMS."""

_BUSY = re.compile(
    r"DependencyViolation|InUse|DeleteConflict|Conflict|InProgress|OperationAborted|ScalingActivity|ResourceNotReady"
    r"|NotEmpty|Incorrect\w*State|InvalidDB\w*State|Invalid\w*State(Fault|Exception)?$|ConcurrentModification"
    r"|Throttl|RequestLimit|TooManyRequests|SlowDown|Unavailable|Internal|ServerException|ServiceFailure"
)
"""Codes of a resource that others still use, or whose state changes, and of a service that cannot answer for now."""


def is_gone(error: Exception) -> bool:
    """Whether AWS says that the resource does not exist any more, or is on its way out for good."""
    if not isinstance(error, ClientError):
        return False
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    return bool(_GONE.search(code) or (code in _VAGUE and _GONE_MESSAGE.search(message)))


def is_closed(error: ClientError) -> bool:
    """Whether the policy of the resource itself denies access, whatever the caller's own policies allow.

    AWS says so in the message (IAM user guide, "Troubleshoot access denied error messages"). The stack makes no such resource.
    """
    return "AccessDenied" in _code(error) and "resource-based policy" in str(error.response["Error"].get("Message", ""))


def is_busy(error: Exception) -> bool:
    """Whether the same call may succeed later: something still uses the resource, or AWS gave no answer."""
    if isinstance(error, BotoCoreError | ResponseParserError):
        return True
    if not isinstance(error, ClientError):
        return False
    status, code = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0), _code(error)
    if code == "AuthFailure":  # EC2 says so of an address that a NAT gateway or a load balancer has not let go of yet
        return error.operation_name in {"DisassociateAddress", "ReleaseAddress"}
    return status >= 500 or status == 429 or bool(_BUSY.search(code))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def reason(error: Exception) -> str:
    """The error in one line."""
    if isinstance(error, ClientError):
        details = error.response.get("Error", {})
        return f"{error.operation_name}: {details.get('Code', '')}: {' '.join(str(details.get('Message', '')).split())}"
    return " ".join(str(error).split())


@contextmanager
def unless_gone() -> Iterator[None]:
    """A block that reads the details of a resource, which may be removed meanwhile; nothing is read then."""
    try:
        yield
    except ClientError as error:
        if not is_gone(error):
            raise


def unless_whole_gone(parts: Iterable[Item]) -> Iterator[Item]:
    """The parts of a resource, as far as they are listed before the resource is removed meanwhile."""
    with unless_gone():
        yield from parts
