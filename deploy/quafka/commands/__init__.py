"""The client commands: topics, groups, configs, produce, consume, doctor."""
