"""The refusal that a failed request to AWS leads to."""

from __future__ import annotations

from infra.spec.errors import RefusedError


def aws_refusal(message: str, error: Exception, *, remedy: str) -> RefusedError:
    """A refusal that tells a network without AWS from credentials without rights.

    Args:
        message: what could not be done, if AWS answered or was not asked because there are no credentials.
        error: a `BotoCoreError` or `ClientError`.
        remedy: how to get credentials that can.
    """
    # Not in the trainer's environment. Both are bases: of errors of connecting, and of an established connection.
    from botocore.exceptions import ConnectionError as NoConnectionError  # noqa: PLC0415
    from botocore.exceptions import HTTPClientError  # noqa: PLC0415

    if isinstance(error, NoConnectionError | HTTPClientError):
        return RefusedError(
            f"AWS does not answer: {error}", remedy="check the network and its proxy (HTTPS_PROXY), then retry"
        )
    return RefusedError(f"{message}: {error}", remedy=remedy)
