"""Entry point of `python -m agent_magic.simulator`."""

import sys

from agent_magic.simulator.program import main

sys.exit(main())
