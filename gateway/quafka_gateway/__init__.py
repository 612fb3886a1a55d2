"""The gateway: Kafka clients on one side, the mesh on the other."""
