"""Imported by the fork server before it forks: torch and the trainer, so that a rank starts in milliseconds."""

from __future__ import annotations

import gc
from importlib import import_module

from training.launch.quick_import import collector_off

with collector_off():
    import_module("training.session")
    import_module("torch._dynamo")  # torch imports it with the first optimizer

gc.freeze()  # or a rank's first collection would write to, and so copy, the pages that it shares with the fork server
