"""A thin Kafka client, for the `quafka` command and other programs for people.

It works with this server and with Apache Kafka.
"""
