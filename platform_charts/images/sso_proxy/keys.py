"""The public keys of the load balancers of a region, which AWS serves by their IDs."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from http import HTTPStatus

from aiohttp import ClientError, ClientSession, ClientTimeout
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from .token import RefusedTokenError

_SECONDS = 10.0
_MOST = 32
"""Keys to keep: a load balancer has few at a time."""


class KeyServerError(Exception):
    """The server of the keys does not answer; the message says how."""


class PublicKeys:
    """The keys that have been asked for. An ID names one key for ever, so that a key never changes.

    Args:
        session: client of the server.
        url: address of the server, to which an ID is added.
    """

    def __init__(self, session: ClientSession, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._found: OrderedDict[str, EllipticCurvePublicKey] = OrderedDict()
        self._fetching = asyncio.Lock()

    async def get(self, key_id: str) -> EllipticCurvePublicKey:
        """The key with this ID.

        Raises:
            RefusedTokenError: there is none.
            KeyServerError: the server does not answer.
        """
        async with self._fetching:  # one request for the many with which a page begins
            if key_id not in self._found:
                self._found[key_id] = await self._fetch(key_id)
            self._found.move_to_end(key_id)
            while len(self._found) > _MOST:
                self._found.popitem(last=False)
            return self._found[key_id]

    async def _fetch(self, key_id: str) -> EllipticCurvePublicKey:
        try:
            timeout = ClientTimeout(total=_SECONDS)
            async with self._session.get(f"{self._url}/{key_id}", timeout=timeout, allow_redirects=False) as answer:
                if answer.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                    raise RefusedTokenError(f"AWS knows no key {key_id}")
                if answer.status != HTTPStatus.OK:
                    raise KeyServerError(f"{self._url} answers {answer.status}")
                text = await answer.read()
        except (ClientError, TimeoutError) as error:
            raise KeyServerError(f"{self._url} does not answer: {type(error).__name__}: {error}") from error
        try:
            key = load_pem_public_key(text)
        except ValueError as error:
            raise KeyServerError(f"{self._url} answers with something that is not a key") from error
        if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
            raise KeyServerError(f"{self._url} answers with a key that is not of the curve P-256")
        return key
