"""Start this host's ranks with horovodrun, or the script itself where there is one slot.

The name of Determined's launch module in its 0.17 versions; `trainmaster.launch.horovod --autohorovod` is the same.
"""

import sys

from trainmaster.launch.horovod import AUTO, main

if __name__ == "__main__":
    asks = sys.argv[1:2] in (["-h"], ["--help"])
    sys.exit(main(sys.argv[1:] if asks else [AUTO, *sys.argv[1:]]))
