"""Copies of topics within a cluster and between clusters, once or continuously."""
