"""Orgs, users, ACLs and quotas: records in the log, which every gateway has a copy of."""
