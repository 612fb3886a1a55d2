"""Property tests of the mesh's bytes."""
