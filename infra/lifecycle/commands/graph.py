"""Show the resources of an environment, without a Pulumi engine, an account or a cluster."""

from __future__ import annotations

import time

from infra.lifecycle.options import GraphOptions
from infra.lifecycle.show import print_line, print_table
from infra.preview.graph import document, table
from infra.preview.recording import record
from infra.spec.errors import SettingsError
from infra.spec.output import writing
from infra.spec.settings import load_environment

PICTURES = (".svg", ".png", ".pdf")


def graph(options: GraphOptions) -> int:
    """Print every resource of an environment; optionally write JSON and a picture of AWS and the cluster."""
    settings = load_environment(options.env)
    if options.picture is not None and options.picture.suffix not in PICTURES:
        raise SettingsError(
            f"{options.picture}: the format must be {', '.join(PICTURES[:-1])} or {PICTURES[-1]}",
            remedy="name a file that ends so; FILE=x.json writes every resource instead",
        )
    recording = record(settings)
    if options.json is not None:
        with writing(options.json):
            options.json.write_text(document.render(recording), encoding="utf-8")
    if options.picture is not None:
        # Imported here because the table needs no matplotlib.
        from infra.preview.graph import picture

        with writing(options.picture):
            picture.draw(settings, recording, options.picture)
    print_table(table.resource_table(recording))
    # CPU time of the whole process, imports included; independent of other load on the machine.
    print_line(f"evaluated in {time.process_time():.1f} s of CPU time")
    return 0
