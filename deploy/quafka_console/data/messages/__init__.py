"""The records of a topic, as a person reads them."""
