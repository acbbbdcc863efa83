"""The proxy: checks who sends a request, and passes it on to a UI inside the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from .keys import KeyServerError, PublicKeys
from .logins import LoginError, Logins
from .sites import Site, refusal_of
from .token import TOKEN_FIELD, Person, RefusedTokenError, Trust, parsed, person_of

HEALTH_PATH: Final = "/.sso/health"
"""Path that answers the load balancer and the kubelet, at every host name."""

_CONNECTION = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
"""Fields about one connection, which a proxy does not pass on (RFC 9110, section 7.6.1)."""

_KEPT_BACK = frozenset(("host", "authorization", "cookie", "origin", "referer", "forwarded"))
"""Fields of a request that the UIs do not get: they accept nothing but the login that the proxy adds, and MLflow compares Origin
and Referer with its own name. The cookies are the load balancer's sessions."""

_PREFIXES_KEPT_BACK = ("x-amzn-oidc-", "x-forwarded-", "x-webauth-", "sec-")

_NOT_RETURNED = frozenset(("set-cookie", "www-authenticate"))
"""Fields of an answer that the browser does not get: it would be asked for a password that only the proxy has."""

_CONNECT_SECONDS, _READ_SECONDS = 5.0, 300.0
_CHUNK = 65536
_LONGEST_FIELD = 65536
"""Bytes of a field of a request: claims are up to 11 kB, and the load balancer's sessions several cookies of 4 kB."""

Say = Callable[[str], None]


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """The answer to a request that does not reach a UI.

    Attributes:
        status: HTTP status.
        text: what the person reads.
        cause: what the log says.
    """

    def __init__(self, status: HTTPStatus, text: str, *, cause: str = "") -> None:
        super().__init__(text)
        self.status, self.text, self.cause = status, text, cause or text


class SsoProxy:
    """The proxy's handler of requests.

    Args:
        sites: the UIs.
        trust: whose tokens are accepted.
        keys: the keys that sign them.
        logins: the teams' logins.
        session: client of the UIs, which neither follows redirects nor keeps cookies.
        say: takes a line of the log.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        trust: Trust,
        *,
        keys: PublicKeys,
        logins: Logins,
        session: ClientSession,
        say: Say,
    ) -> None:
        self._sites: Mapping[str, Site] = {site.host: site for site in sites}
        self._trust = trust
        self._keys = keys
        self._logins = logins
        self._session = session
        self._say = say

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if request.path == HEALTH_PATH:
            return web.Response(text="ok\n")
        person: Person | None = None
        try:
            site = self._site_of(request)
            person = await self._person_of(request)
            if not site.admits(person):
                groups = ", ".join(sorted(site.groups))
                text = f"{person.name} may not use {site.title}, which is for members of {groups}"
                raise Refused(HTTPStatus.FORBIDDEN, text)
            path = request.raw_path.partition("?")[0]
            refusal = refusal_of(site, method=request.method, path=path, fields=request.headers)
            if refusal:
                raise Refused(HTTPStatus.FORBIDDEN, refusal)
            answer = await self._passed_on(request, site)
        except Refused as refused:
            self._log(request, person, refused.status, refused.cause)
            return web.Response(status=refused.status, text=f"{refused.text}\n", headers={"Cache-Control": "no-store"})
        if request.method not in {"GET", "HEAD"}:  # MLflow knows the team only
            self._log(request, person, answer.status, "")
        return answer

    def _site_of(self, request: web.Request) -> Site:
        host = request.host.partition(":")[0].lower()
        if host not in self._sites:
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, f"there is no UI at {host}")
        return self._sites[host]

    async def _person_of(self, request: web.Request) -> Person:
        tokens = request.headers.getall(TOKEN_FIELD, [])
        try:
            if len(tokens) != 1:
                raise RefusedTokenError(f"the request has {len(tokens)} of them")
            token = parsed(tokens[0], self._trust, now=time.time())
            key = await self._keys.get(token.key_id)
            return person_of(token, key, groups_claim=self._trust.groups_claim)
        except RefusedTokenError as error:
            text = "the load balancer's token is not valid; reload the page to sign in again"
            raise Refused(HTTPStatus.UNAUTHORIZED, text, cause=f"the token is refused: {error}") from error
        except KeyServerError as error:
            text = "the key of the load balancer's token cannot be fetched; try again"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, text, cause=str(error)) from error

    async def _passed_on(self, request: web.Request, site: Site) -> web.StreamResponse:
        fields = _fields_for_the_ui(request)
        if site.team is not None:
            try:
                fields["Authorization"] = await self._logins.basic(site.team)
            except LoginError as error:
                text = f"the login of {site.title} cannot be read; tell an administrator of the platform"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, text, cause=str(error)) from error
        url = URL(f"{site.upstream}{request.raw_path}", encoded=True)
        body = request.content if request.body_exists else None
        try:
            answer = await self._session.request(request.method, url, headers=fields, data=body, allow_redirects=False)
        except (ClientError, TimeoutError) as error:
            cause = f"{site.upstream} does not answer: {type(error).__name__}: {error}"
            raise Refused(HTTPStatus.BAD_GATEWAY, f"{site.title} does not answer", cause=cause) from error
        async with answer:
            if answer.status == HTTPStatus.UNAUTHORIZED and site.team is not None:
                self._logins.forget(site.team)
                text = f"{site.title} has refused the login of the team; reload the page"
                raise Refused(HTTPStatus.BAD_GATEWAY, text)
            return await _returned(answer, request)

    def _log(self, request: web.Request, person: Person | None, status: int, problem: str) -> None:
        """One line of JSON, so that nothing in a request can end it."""
        line = {
            "person": None if person is None else person.name,
            "host": request.host,
            "method": request.method,
            "path": request.path,
            "status": int(status),
            **({"problem": problem} if problem else {}),
        }
        self._say(json.dumps(line))


def client_of_uis() -> ClientSession:
    """A client that passes answers on as they are; needs a running event loop."""
    timeout = ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
    return ClientSession(
        timeout=timeout,
        auto_decompress=False,
        connector=TCPConnector(limit=0),
        cookie_jar=DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )


def application(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    """The web application; bodies have any size, because they are not kept."""
    made = web.Application(handler_args={"max_field_size": _LONGEST_FIELD, "max_line_size": _LONGEST_FIELD})
    made.router.add_route("*", "/{path:.*}", handle)
    return made


def _fields_for_the_ui(request: web.Request) -> CIMultiDict[str]:
    # A client may name further fields of its connection.
    named = {one.strip().lower() for value in request.headers.getall("Connection", []) for one in value.split(",")}
    dropped = _CONNECTION | _KEPT_BACK | named
    return CIMultiDict(
        (name, value)
        for name, value in request.headers.items()
        if name.lower() not in dropped and not name.lower().startswith(_PREFIXES_KEPT_BACK)
    )


async def _returned(answer: ClientResponse, request: web.Request) -> web.StreamResponse:
    """The UI's answer, passed on piece by piece."""
    dropped = _CONNECTION | _NOT_RETURNED
    fields = CIMultiDict((name, value) for name, value in answer.headers.items() if name.lower() not in dropped)
    returned = web.StreamResponse(status=answer.status, reason=answer.reason, headers=fields)
    await returned.prepare(request)
    async for piece in answer.content.iter_chunked(_CHUNK):
        await returned.write(piece)
    await returned.write_eof()
    return returned
