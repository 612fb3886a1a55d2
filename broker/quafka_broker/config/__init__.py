"""The settings of a broker, what Kafka clients see of them, and the grants of its Redis file."""
