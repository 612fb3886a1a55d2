"""The broker: one write-ahead log, virtual topics, and the ops gateways send."""
