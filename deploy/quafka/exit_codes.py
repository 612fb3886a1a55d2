"""The exit codes of the `quafka` command; 0: done."""

EXIT_CANNOT_START = 1
EXIT_WRONG_SETTING = 2
EXIT_INTERRUPTED = 130
EXIT_NOBODY_READS = 141
