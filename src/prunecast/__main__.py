"""Run the command `prunecast` as `python -m prunecast`."""

import sys

from prunecast.cli import main

if __name__ == "__main__":
    sys.exit(main())
