"""A load balancer in front of the proxy: it signs tokens as AWS's does, and serves its public key."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession, web
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from platform_charts.images.sso_proxy.keys import PublicKeys
from platform_charts.images.sso_proxy.logins import Logins
from platform_charts.images.sso_proxy.proxy import SsoProxy, application, client_of_uis
from platform_charts.images.sso_proxy.sites import Site
from platform_charts.images.sso_proxy.token import Trust
from tests.engines.servers import Handler, http_server

KEY_ID = "0d1f6c3e-2f4b-4b9e-9a5c-7f2f3e1c9b10"
SIGNER = "arn:aws:elasticloadbalancing:us-east-1:111122223333:loadbalancer/app/rtp-dev-sso/"
TRUST = Trust(signer=SIGNER, issuer="https://idp.example.com", client_id="ray-train-platform", groups_claim="groups")


def encoded(value: bytes) -> str:
    """URL-safe base64 with padding, as the load balancer writes it."""
    return base64.urlsafe_b64encode(value).decode()


@dataclass(frozen=True)
class LoadBalancer:
    """A load balancer with its key."""

    key: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))

    @property
    def public_key(self) -> EllipticCurvePublicKey:
        """The key that verifies its tokens."""
        return self.key.public_key()

    def token(self, groups: object = ("ml-research",), *, claims: object = None, **header: object) -> str:
        """A token of somebody in these groups.

        Args:
            groups: value of the claim.
            claims: the whole payload instead.
            header: fields of the header that differ from a good one.
        """
        given = {
            "typ": "JWT",
            "kid": KEY_ID,
            "alg": "ES256",
            "iss": TRUST.issuer,
            "client": TRUST.client_id,
            "signer": f"{SIGNER}50dc6c495c0c9188",
            "exp": time.time() + 120,
            **header,
        }
        payload = {"sub": "4711", "email": "ada@example.com", "groups": groups} if claims is None else claims
        signed = ".".join(encoded(json.dumps(part).encode()) for part in (given, payload))
        r, s = decode_dss_signature(self.key.sign(signed.encode(), ECDSA(SHA256())))
        return f"{signed}.{encoded(r.to_bytes(32) + s.to_bytes(32))}"


class _Keys(Handler):
    keys: dict[str, bytes]

    def do_GET(self) -> None:  # noqa: N802
        """Answer with a key, or refuse as S3 does."""
        found = self.keys.get(self.path.removeprefix("/"))
        self.answer(200 if found else 403, found or b"")


@contextmanager
def served_keys(balancer: LoadBalancer) -> Iterator[str]:
    """The address of a server with the load balancer's key."""
    pem = balancer.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with http_server(type("Keys", (_Keys,), {"keys": {KEY_ID: pem}})) as url:
        yield url


@dataclass
class MemoryLogins:
    """Logins in memory; implements `Logins`. Each login of a team is used until it is forgotten."""

    found: dict[str, list[str]]

    async def basic(self, team: str) -> str:
        """The team's first login."""
        return self.found[team][0]

    def forget(self, team: str) -> None:
        """Go on to the next login."""
        self.found[team].pop(0)


@dataclass(frozen=True)
class RunningProxy:
    """A proxy that serves.

    Attributes:
        url: its address.
        said: lines of its log.
    """

    url: str
    said: list[str]

    def line_of(self, path: str) -> dict[str, object]:
        """The line of its log about a path. It is written after the answer, which may be here before it.

        Raises:
            AssertionError: there is none after a minute.
        """
        deadline = time.monotonic() + 60
        while True:
            lines: list[dict[str, object]] = [json.loads(line) for line in self.said]
            found = next((line for line in lines if line["path"] == path), None)
            if found is not None:
                return found
            assert time.monotonic() < deadline, f"no line about {path}: {lines}"
            time.sleep(0.01)


@contextmanager
def proxy(sites: Sequence[Site], *, keys: str, logins: Logins) -> Iterator[RunningProxy]:
    """The proxy at a free port, in a thread with a loop of its own."""
    said: list[str] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = _serving(sites, keys=keys, logins=logins, said=said)
    try:
        port = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(60)
        yield RunningProxy(f"http://127.0.0.1:{port}", said)
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@asynccontextmanager
async def _serving(sites: Sequence[Site], *, keys: str, logins: Logins, said: list[str]) -> AsyncIterator[int]:
    async with client_of_uis() as uis, ClientSession() as session:
        public_keys = PublicKeys(session, keys)
        found = SsoProxy(sites, TRUST, keys=public_keys, logins=logins, session=uis, say=said.append)
        runner = web.AppRunner(application(found.handle))
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()
