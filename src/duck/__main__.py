"""`python -m duck` is the command `duck`; torchrun needs it."""

import sys

from duck.cli import main

sys.exit(main())
