"""Property tests of the command."""
