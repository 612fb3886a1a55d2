"""The handlers of Kafka's APIs, one module an API, and their helpers."""
