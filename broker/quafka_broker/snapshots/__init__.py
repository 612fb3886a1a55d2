"""Snapshots of the log: cuts, pins that hold their files, the files in DEST, and restores."""
