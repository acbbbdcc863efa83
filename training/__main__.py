"""`python -m training`."""

# PYTHON_ARGCOMPLETE_OK

import sys

from training.cli import main

sys.exit(main())
