"""`python -m training`."""

# PYTHON_ARGCOMPLETE_OK

import faulthandler
import sys

if sys.stderr is not None:
    faulthandler.enable()  # a crash in a compiled library, such as Ray's, shows where it happened

try:
    from training.cli import main
except KeyboardInterrupt:  # Ctrl-C during the imports, before `main` handles it
    sys.exit(130)

sys.exit(main())
