"""`python -m quafka` is `quafka`."""

import sys

from quafka.cli import main

sys.exit(main())
