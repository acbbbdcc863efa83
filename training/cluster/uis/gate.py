"""Who may use a local port behind which requests are logged in.

Every program of this machine and every page in the user's browser reaches a port of the loopback interface. So a request must come
from the browser that opened the URL which only the user saw: the URL's key becomes a cookie. Pages of other sites are recognized by
the fields Host, which guards against DNS rebinding, and Origin, which browsers add to requests that can change something.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from training.cluster.uis.head import RequestHead

_OPEN = "/.open/"
_TEXT = (("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store"))


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The rules of one port.

    Attributes:
        port: the port.
        start: page to begin with.
        key: key of the URL; None for a UI without a login, which tools may use as well.
    """

    port: int
    start: str
    key: str | None = field(repr=False)

    @property
    def url(self) -> str:
        """The URL to open; MLflow's server refuses other names of this machine than localhost."""
        path = self.start if self.key is None else f"{_OPEN}{self.key}"
        return f"http://localhost:{self.port}{path}"

    @property
    def cookie(self) -> str:
        """Name of the cookie with the key; the port is part of it, because browsers share cookies among ports."""
        return f"open-{self.port}"

    def answer(self, head: RequestHead) -> bytes | None:
        """The answer to a request that is not for the UI; None for one that is."""
        own = {f"localhost:{self.port}", f"127.0.0.1:{self.port}"}
        if not set(head.values("host")) <= own or not set(head.values("origin")) <= {f"http://{one}" for one in own}:
            return answer(403, "Forbidden", "this port is for pages of its own only")
        if self.key is None:
            return None
        if head.target.startswith(_OPEN) and _is_same(head.target.removeprefix(_OPEN), self.key):
            kept = f"{self.cookie}={self.key}; Path=/; HttpOnly; SameSite=Lax"
            return answer(303, "See Other", "", ("Location", self.start), ("Set-Cookie", kept))
        if _is_same(head.cookie(self.cookie) or "", self.key):
            return None
        return answer(403, "Forbidden", "open the URL that `make open` has printed")


def answer(status: int, reason: str, text: str, *fields: tuple[str, str]) -> bytes:
    """A whole response, after which the connection closes."""
    body = f"{text}\n".encode() if text else b""
    given = (*_TEXT, *fields, ("Content-Length", str(len(body))), ("Connection", "close"))
    lines = (f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in given))
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _is_same(given: str, key: str) -> bool:
    return hmac.compare_digest(given.encode(), key.encode())
