"""Write the settings of a disposable test cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from infra.lifecycle.disposable.stack import ThrowAway
from infra.lifecycle.options import TestEnvironmentOptions
from infra.lifecycle.show import print_line


def test_environment(options: TestEnvironmentOptions) -> int:
    """Write `infra/environments/<name>.yaml`, which git ignores for names that begin with `test-`.

    Raises:
        SettingsError: the environment exists, or an option is invalid; nothing is written.
    """
    made = ThrowAway(
        name=options.name,
        owner=options.owner,
        account=options.account,
        purpose="manual",
        expires=datetime.now(UTC).replace(microsecond=0) + timedelta(hours=options.hours),
        budget_usd=options.budget,
    )
    made.write()
    print_line(
        f"{made.settings_file}: expires at {made.expires.isoformat()}; next: pulumi stack init {made.name}, "
        f"make up ENV={made.name}"
    )
    return 0
