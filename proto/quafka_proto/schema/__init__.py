"""Our description of each Kafka API, one module per API family."""
