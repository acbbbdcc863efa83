"""The head of an HTTP/1.1 request (RFC 9112): its request line and fields."""

from __future__ import annotations

from dataclasses import dataclass, replace

END = b"\r\n\r\n"

_HOP = frozenset({"connection", "keep-alive", "proxy-connection"})
"""Fields about one connection, which a proxy does not pass on (RFC 9110, section 7.6.1)."""


@dataclass(frozen=True)
class RequestHead:
    """A request without its body.

    Attributes:
        line: method, target and version.
        fields: names and values in their order.
    """

    line: str
    fields: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, raw: bytes) -> RequestHead:
        """Parse a head without the empty line at its end.

        Raises:
            ValueError: it is not one.
        """
        line, *rest = raw.decode("latin-1").split("\r\n")
        _method, _target, version = line.split(" ")
        pairs = [field.partition(":") for field in rest]
        if not version.startswith("HTTP/1.") or not all(name.strip() == name and colon for name, colon, _ in pairs):
            raise ValueError(line)
        return cls(line, tuple((name, value.strip()) for name, _, value in pairs))

    @property
    def method(self) -> str:
        """The method."""
        return self.line.split(" ")[0]

    @property
    def target(self) -> str:
        """Path and query."""
        return self.line.split(" ")[1]

    def values(self, name: str) -> list[str]:
        """The values of a field, whose name is in lower case."""
        return [value for key, value in self.fields if key.lower() == name]

    def cookie(self, name: str) -> str | None:
        """The value of a cookie."""
        return dict(_cookies(self)).get(name)

    def passed_on(self, *, authorization: str | None, without_cookie: str) -> RequestHead:
        """The request as a server gets it.

        It asks the server to close the connection after its answer, so that a connection carries one request and nothing behind
        the head needs to be understood; or to become a WebSocket, as the client asked.

        Args:
            authorization: value of the field Authorization; None keeps the client's.
            without_cookie: name of the cookie that is not for the server.
        """
        dropped = _HOP | {"cookie"} | ({"authorization"} if authorization else frozenset())
        kept = [(name, value) for name, value in self.fields if name.lower() not in dropped]
        cookies = "; ".join(f"{name}={value}" for name, value in _cookies(self) if name != without_cookie)
        added = {
            "Cookie": cookies,
            "Authorization": authorization,
            "Connection": "Upgrade" if self.values("upgrade") else "close",
        }
        return replace(self, fields=(*kept, *((name, value) for name, value in added.items() if value)))

    def encoded(self) -> bytes:
        """The head as it is sent, with the empty line at its end."""
        lines = (self.line, *(f"{name}: {value}" for name, value in self.fields))
        return "\r\n".join(lines).encode("latin-1") + END


def _cookies(head: RequestHead) -> list[tuple[str, str]]:
    pairs = (pair.strip().partition("=") for value in head.values("cookie") for pair in value.split(";"))
    return [(name, value) for name, _, value in pairs if name]
