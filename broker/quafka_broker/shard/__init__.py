"""One shard: a log, all state built from it, and what serves it."""
