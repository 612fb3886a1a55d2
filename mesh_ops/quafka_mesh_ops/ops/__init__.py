"""The ops between gateway and broker, by family, and their codec.

Times are milliseconds since the Unix epoch, `error_code` is a Kafka error code (0: none) and
`topic_id` is the UUID of a topic as 16 bytes (empty: the topic is named by name), unless a type
states otherwise.
"""
