"""The fetch path: sessions, the cache, shared polls and leases."""
