"""`python -m tune`."""

from __future__ import annotations

import faulthandler
import sys

from tune.cli import main

if sys.stderr is not None:
    faulthandler.enable()  # a crash in a compiled library, such as Ray's, shows where it happened

sys.exit(main())
