"""Consumer groups of the classic protocol: states and members (pure), and requests."""
