"""Calls of the training process that the agent passes on to the master."""
