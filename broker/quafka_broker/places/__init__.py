"""Records by place: gateways on this host read segments themselves, by descriptors."""
