"""A thin Kafka client for `quafka topics`, `groups`, `configs` and `doctor`.

It works with this server and with Apache Kafka.
"""
