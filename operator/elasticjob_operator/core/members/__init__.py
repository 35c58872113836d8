"""Reconciles the pods of members and master, and counts how they end."""
