"""A cluster of brokers on one object store: its members, the places of shards, and their moves."""
