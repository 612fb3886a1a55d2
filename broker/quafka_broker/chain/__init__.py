"""The chain of a shard: its log in an object store. Creating the next object is the commit."""
