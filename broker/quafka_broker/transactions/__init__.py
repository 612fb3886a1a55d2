"""Transactions: the coordinator's state and rules (pure), the journal, and endings."""
