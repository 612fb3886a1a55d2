"""Topics of Apache Kafka's own log folders, served read only and in place."""
