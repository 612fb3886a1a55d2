"""Traces without a tracing back end: the last ones that gateways and brokers have exported."""
