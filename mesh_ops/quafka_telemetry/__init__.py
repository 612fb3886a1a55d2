"""Traces, metrics, logs and the operations port of a Quafka process; not the mesh itself."""
