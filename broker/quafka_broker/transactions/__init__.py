"""Transactions: the coordinator's state and rules (pure), their journal, and their end."""
