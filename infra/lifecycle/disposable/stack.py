"""The settings, the stack and the secret of a disposable test cluster, which exist only as long as it does."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from infra.spec.errors import SettingsError
from infra.spec.names import TEST_PREFIX
from infra.spec.output import writing
from infra.spec.release_rules import ROOT
from infra.spec.settings import load_environment, render_test_environment
from infra.spec.settings.loading import ENVIRONMENTS, STACK_FILES

LONGEST = timedelta(hours=72)
"""Largest time to live: a cluster that is needed for longer is an environment, with a file of its own in git."""

_UNITS = {"m": 60, "h": 3600, "d": 86400}

_PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")
"""Variables from which Pulumi reads the passphrase of a stack's secrets."""


def time_to_live(text: str) -> timedelta:
    """A time to live, e.g. 90m, 4h or 2d.

    Raises:
        SettingsError: it is not one, or longer than `LONGEST`.
    """
    found = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if found is None or not int(found[1]):
        raise SettingsError(f"TTL={text}: must be a number of minutes, hours or days", remedy="e.g. 90m, 4h or 2d")
    value = timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    if value > LONGEST:
        raise SettingsError(
            f"TTL={text}: a test cluster lives for {LONGEST.total_seconds() / 3600:.0f} h at most",
            remedy="set a smaller TTL; a cluster that is needed for longer is an environment: "
            "`python -m infra.lifecycle test-environment --hours …`",
        )
    return value


@dataclass(frozen=True, kw_only=True)
class ThrowAway:
    """A disposable environment.

    Attributes:
        name: name of environment and stack, e.g. test-1f2e3d.
        owner: email address of the owner.
        account: the only AWS account that may hold it.
        purpose: what it is for; a tag.
        expires: when it may be reaped.
        budget_usd: US dollars per month of its budget.
    """

    name: str
    owner: str
    account: str
    purpose: str
    expires: datetime
    budget_usd: float

    @property
    def settings_file(self) -> Path:
        """Its settings, which git ignores."""
        return ENVIRONMENTS / f"{self.name}.yaml"

    @property
    def passphrase_file(self) -> Path:
        """The passphrase of its stack's secrets, if this machine made it."""
        return ROOT / ".local" / "cluster-test" / f"{self.name}.passphrase"

    def write(self) -> None:
        """Write the settings.

        Raises:
            SettingsError: the environment exists, or a value is invalid; nothing is written.
        """
        if self.settings_file.exists():
            raise SettingsError(
                f"{self.settings_file}: exists",
                remedy="choose another name, or take that environment down and delete its file",
            )
        try:
            text = render_test_environment(
                name=self.name,
                owner=self.owner,
                account=self.account,
                purpose=self.purpose,
                expires=self.expires,
                budget_usd=self.budget_usd,
            )
        except ValueError as error:
            raise SettingsError(str(error)) from error
        with writing(self.settings_file):
            self.settings_file.write_text(text, encoding="utf-8")
        try:
            load_environment(self.name)
            self._check_name()
        except SettingsError:
            self.settings_file.unlink()
            raise

    def _check_name(self) -> None:
        if not self.name.startswith(TEST_PREFIX):
            raise SettingsError(
                f"environment.name = {self.name}: must begin with {TEST_PREFIX}, so that git ignores the files of a test cluster",
                remedy=f"e.g. {new_name()}",
            )

    def make_passphrase(self, variables: MutableMapping[str, str] = os.environ) -> None:
        """Give the stack's secrets a passphrase of their own, unless the user has set one."""
        if any(name in variables for name in _PASSPHRASES):
            return
        file = self.passphrase_file
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
                opened.write(secrets.token_urlsafe(32))
        variables["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(file)

    def how_to_end(self) -> tuple[str, ...]:
        """The commands that take it down later."""
        made = self.passphrase_file.exists()
        export = (f"  export PULUMI_CONFIG_PASSPHRASE_FILE={self.passphrase_file}",) if made else ()
        return (
            *export,
            f"  make down ENV={self.name} YES=1",
            f"  or, without its state: make reap ACCOUNT={self.account}, from {self.expires.isoformat()} on",
        )

    def forget(self) -> None:
        """Delete its files, once it is down."""
        for file in (self.settings_file, STACK_FILES / f"Pulumi.{self.name}.yaml", self.passphrase_file):
            file.unlink(missing_ok=True)


def new_name() -> str:
    """A name that no other test has."""
    return f"{TEST_PREFIX}{secrets.token_hex(3)}"
