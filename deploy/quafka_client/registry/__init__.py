"""Values in Confluent's wire format, decoded by the schemas of a registry."""
