"""Copies the checkpoints that members keep in memory between the agents of a job."""
