"""boto3's objects: names for them, because boto3 generates them at run time without types, and the clients of an account."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

Session = Any
"""A `boto3.Session` with region and credentials."""

Client = Any
"""A client of one AWS service."""

AWS_ERRORS: Final = (BotoCoreError, ClientError, ResponseParserError)
"""What a request raises; the last, which botocore bases on neither of the others, if the answer is a proxy's page."""

ATTEMPTS = 6
"""Attempts of a request that is throttled or fails in the service, with botocore's standard back-off: about a minute."""


class Clients:
    """Clients of one account's services, made once each. They may be used by several threads; a session may not.

    Args:
        session: boto3 session with credentials.
        account: the account of the credentials.
    """

    def __init__(self, session: Session, *, account: str) -> None:
        self.account = account
        self._session = session
        self._config = Config(retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
        self._made: dict[tuple[str, str], Client] = {}
        self._lock = Lock()

    def of(self, service: str, region: str) -> Client:
        """The client of a service in a region."""
        with self._lock:
            if (service, region) not in self._made:
                made = self._session.client(service, region_name=region, config=self._config)
                self._made[service, region] = made
            return self._made[service, region]
