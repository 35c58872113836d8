"""The pods of members and of the master: created, replaced, counted, and when a job has succeeded or failed."""
