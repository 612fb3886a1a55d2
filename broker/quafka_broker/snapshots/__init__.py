"""Snapshots of the log: cuts, the pins that hold their files, the files in DEST, and restores."""
