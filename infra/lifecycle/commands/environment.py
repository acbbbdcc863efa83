"""Write the settings of a disposable test cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from infra.lifecycle.options import TestEnvironmentOptions
from infra.lifecycle.show import print_line
from infra.spec.errors import SettingsError
from infra.spec.output import writing
from infra.spec.settings import load_environment, render_test_environment
from infra.spec.settings.loading import ENVIRONMENTS


def test_environment(options: TestEnvironmentOptions) -> int:
    """Write `infra/environments/<name>.yaml`, which git ignores for names that begin with `test-`.

    Raises:
        SettingsError: the environment exists, or an option is invalid; nothing is written.
    """
    file = ENVIRONMENTS / f"{options.name}.yaml"
    if file.exists():
        raise SettingsError(
            f"{file}: exists", remedy="choose another --name, or destroy that environment and delete its file"
        )
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=options.hours)
    try:
        text = render_test_environment(
            name=options.name,
            owner=options.owner,
            account=options.account,
            expires=expires,
            budget_usd=options.budget,
        )
    except ValueError as error:
        raise SettingsError(str(error)) from error
    with writing(file):
        file.write_text(text, encoding="utf-8")
    try:
        load_environment(options.name)
    except SettingsError:
        file.unlink()
        raise
    print_line(
        f"{file}: expires at {expires.isoformat()}; next: pulumi stack init {options.name}, make up ENV={options.name}"
    )
    return 0
