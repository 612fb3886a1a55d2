"""What `quafka` does as a client: topics, groups, configs, produce, consume, doctor."""
