"""`python -m agent_magic`: the same as the command `agent-magic`."""

import sys

from agent_magic.cli import main

if __name__ == "__main__":
    sys.exit(main())
