"""What an operator sees of a broker: metrics, the status page, figures of ops and shards."""
