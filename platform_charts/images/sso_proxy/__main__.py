"""`python -m sso_proxy`: serve the UIs to people whom the load balancer has signed in, until SIGTERM."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from aiohttp import ClientSession, DummyCookieJar, web
from kubernetes import client, config

from .keys import PublicKeys
from .logins import SecretLogins
from .proxy import SsoProxy, application, client_of_uis
from .sites import Site
from .token import Trust

_GRACE_SECONDS = 20.0

_TEXTS = {
    "--signer": "ARN of the load balancer without the ID at its end",
    "--keys": "URL of the load balancers' public keys, to which an ID is added",
    "--issuer": "issuer of the identity provider",
    "--client-id": "our client ID there",
    "--groups-claim": "claim with a person's groups",
    "--secret": "Secret with a team's login, in the team's namespace",
    "--user-key": "its key of the user",
    "--password-key": "its key of the password",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m sso_proxy", description=__doc__)
    for flag, text in _TEXTS.items():
        made.add_argument(flag, required=True, metavar="TEXT", help=text)
    made.add_argument(
        "--site", type=Site.parse, action="append", required=True, metavar="JSON", help="a UI; repeatable"
    )
    made.add_argument("--port", type=int, default=8080, metavar="N", help="port to listen on; default: 8080")
    return made


async def serve(options: argparse.Namespace) -> web.Application:
    """The application; its clients close with it."""
    sessions = client_of_uis(), ClientSession(cookie_jar=DummyCookieJar())
    uis, keys = sessions
    logins = SecretLogins(
        client.ApiClient(), secret=options.secret, user=options.user_key, password=options.password_key
    )
    trust = Trust(
        signer=options.signer, issuer=options.issuer, client_id=options.client_id, groups_claim=options.groups_claim
    )
    proxy = SsoProxy(
        options.site,
        trust,
        keys=PublicKeys(keys, options.keys),
        logins=logins,
        session=uis,
        say=partial(print, flush=True),
    )
    made = application(proxy.handle)

    async def close(_: web.Application) -> None:
        for session in sessions:
            await session.close()

    made.on_cleanup.append(close)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM, and let requests that are under way end."""
    options = parser().parse_args(arguments)
    config.load_config()
    print(f"serving {', '.join(site.host for site in options.site)}", flush=True)
    web.run_app(serve(options), port=options.port, access_log=None, print=None, shutdown_timeout=_GRACE_SECONDS)


if __name__ == "__main__":
    main()
