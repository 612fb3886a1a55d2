"""One module per mesh op."""
