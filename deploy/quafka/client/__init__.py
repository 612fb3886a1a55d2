"""A thin Kafka client for administration: what `quafka topics`, `groups`, `configs` and `doctor`
ask of a server, this one or Apache Kafka, as any client would.
"""
