"""`python -m prunecast` is the command `prunecast`."""

import sys

from prunecast.cli import main

if __name__ == "__main__":
    sys.exit(main())
