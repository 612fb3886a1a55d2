"""The encoding of responses: how long they may be, what is cached, which errors they have."""
