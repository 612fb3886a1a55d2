"""Compaction: of the records with one key, the last one stays."""
