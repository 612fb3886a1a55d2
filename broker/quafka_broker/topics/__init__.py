"""The topic registry, its journal, topic configs and retention."""
