"""Shares a full cluster among the jobs of an ElasticPool."""
