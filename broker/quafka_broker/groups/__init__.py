"""Consumer groups: the state machine (pure), and the coordinator that runs it."""
