"""Who the AWS credentials belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from infra.kube.aws_errors import aws_refusal
from infra.lifecycle.account.aws import AWS_ERRORS, Session

_ASSUMED = re.compile(r"^arn:aws[\w-]*:sts::(?P<account>\d{12}):assumed-role/(?P<role>[^/]+)/")


class Caller(NamedTuple):
    """The identity of the credentials.

    Attributes:
        account: AWS account.
        arn: ARN of a user, of a role's session, or of the account's root.
    """

    account: str
    arn: str

    def is_one_of(self, roles: Iterable[str]) -> bool:
        """Whether this is a session of one of these IAM roles, given by ARN.

        STS leaves the role's path out of a session's ARN, so names are compared, which are unique in an account.
        """
        session = _ASSUMED.match(self.arn)
        if session is None:
            return False
        names = {(role.split(":")[4], role.rpartition("/")[2]) for role in roles}
        return (session["account"], session["role"]) in names


def caller_of(session: Session) -> Caller:
    """The identity of the session's credentials.

    Raises:
        RefusedError: there are no valid credentials, or AWS does not answer.
    """
    try:
        found = session.client("sts").get_caller_identity()
    except AWS_ERRORS as error:
        raise aws_refusal("no AWS account", error, remedy="sign in, e.g. `aws sso login`") from error
    return Caller(str(found["Account"]), str(found["Arn"]))
