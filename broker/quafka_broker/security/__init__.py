"""Orgs, users, ACLs and quotas: records in the log, of which every gateway has a copy."""
