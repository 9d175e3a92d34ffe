"""``python -m gridaware``: the command line, without needing the script on PATH."""

import sys

from gridaware.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
