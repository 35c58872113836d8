"""Reconciles the pods of members and master, counts their terminations, and says whether the job has succeeded."""
