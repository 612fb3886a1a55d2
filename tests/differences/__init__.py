"""The same raw requests played on Quafka and on Apache Kafka, and every difference explained."""
