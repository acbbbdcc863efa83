"""`python -m observability.dashboards`: write the files that the stack delivers, or draw the dashboards as pictures."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from infra.spec.command_line import CommandLine, NoOptions, option
from infra.spec.errors import SettingsError

COMMANDS = CommandLine("python -m observability.dashboards", "Grafana dashboards as code.", variables={})

_UNITS = {"m": 60, "h": 3600, "d": 86400}


@COMMANDS.command("Dashboards")
def write(options: NoOptions) -> int:  # noqa: ARG001 - every command takes its options
    """Check the dashboards and write the files that the stack delivers; the default."""
    from observability.dashboards.files import FOLDER, write_files  # noqa: PLC0415 - the SDK is there for contributors only

    write_files()
    print(f"wrote {FOLDER}")
    return 0


@dataclass(frozen=True, kw_only=True)
class PreviewOptions:
    """Options of `preview`."""

    prometheus: str = option("address of Prometheus", "http://localhost:9090", metavar="URL")
    out: Path = option("folder of the pictures", Path(".local/dashboards"))
    only: tuple[str, ...] = option("draw only this dashboard, e.g. rtp-run; repeatable", ())
    var: tuple[str, ...] = option("value of a variable, a regular expression; repeatable", (), metavar="NAME=VALUE")
    since: str | None = option("how far back, e.g. 30m, 3h or 2d; by default as the dashboard says")
    end: float | None = option("Unix time of the right edge; by default now")


@COMMANDS.command("Dashboards")
def preview(options: PreviewOptions) -> int:
    """Draw the dashboards as PNG files, with the data of a Prometheus."""
    from observability.dashboards.catalog import DASHBOARDS  # noqa: PLC0415 - help is fast
    from observability.dashboards.preview.picture import View, draw_dashboard  # noqa: PLC0415 - as above
    from observability.dashboards.preview.source import MetricsSource  # noqa: PLC0415 - as above

    known = [dashboard.uid for dashboard in DASHBOARDS]
    if unknown := sorted(set(options.only) - set(known)):
        raise SettingsError(f"unknown dashboard '{unknown[0]}'", remedy=f"one of {', '.join(known)}")
    values = dict(_pair(one) for one in options.var)
    names = {variable.name for dashboard in DASHBOARDS for variable in dashboard.variables}
    if unnamed := sorted(set(values) - names):
        raise SettingsError(f"unknown variable '{unnamed[0]}'", remedy=f"one of {', '.join(sorted(names))}")
    source = MetricsSource(options.prometheus)
    options.out.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        if options.only and dashboard.uid not in options.only:
            continue
        file = options.out / f"{dashboard.uid}.png"
        seconds = _seconds(options.since or dashboard.since)
        end = time.time() if options.end is None else options.end
        draw_dashboard(dashboard, View(source=source, end=end, seconds=seconds, values=values), file)
        print(f"wrote {file}", flush=True)
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise SettingsError(f"--var={text} has no value", remedy="write it as NAME=VALUE, e.g. team=research")
    return name, value


def _seconds(text: str) -> float:
    if not text[:-1].isdigit() or text[-1] not in _UNITS:
        raise SettingsError(f"--since={text} is not a duration", remedy="a number and m, h or d, e.g. 3h")
    return int(text[:-1]) * _UNITS[text[-1]]


if __name__ == "__main__":
    sys.exit(COMMANDS.main(sys.argv[1:] or ["write"]))
