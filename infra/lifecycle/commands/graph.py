"""See what an environment consists of, without an engine, an account or a cluster."""

from __future__ import annotations

import argparse

from infra.graph import document, picture, table
from infra.lifecycle.show import print_table
from infra.recording import record
from infra.settings import load


def graph(options: argparse.Namespace) -> int:
    """Print every resource of an environment; write it as JSON and as a picture where asked."""
    settings = load(options.env)
    recording = record(settings)
    print_table(table.of(recording))
    if options.json is not None:
        options.json.write_text(document.render(recording), encoding="utf-8")
    if options.picture is not None:
        picture.draw(settings, recording, options.picture)
    return 0
