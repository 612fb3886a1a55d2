"""Records by place: segments that gateways on this host read themselves, and descriptors."""
