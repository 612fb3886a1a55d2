"""The `quafka` command: settings, processes, and what an operator sees."""
