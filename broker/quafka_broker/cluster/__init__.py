"""A cluster of brokers on one object store: who is there, which shard is where, and moves."""
