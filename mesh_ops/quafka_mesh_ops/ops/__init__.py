"""The ops that gateway and broker exchange, by family, and their codec."""
