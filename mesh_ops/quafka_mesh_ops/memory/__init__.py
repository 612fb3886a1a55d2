"""Large ops in memory that a gateway shares with a broker on its host (docs/adr/0075)."""
