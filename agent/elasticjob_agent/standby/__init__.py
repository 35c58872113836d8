"""Keeps interpreters ready that have imported what the training program imports."""
