"""`python -m trainmaster` is the command line, where its console script is not on the PATH."""

import sys

from trainmaster.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
