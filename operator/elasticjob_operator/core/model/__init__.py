"""The data that decisions use: what is observed of a job, the actions, and the types of a plan."""
