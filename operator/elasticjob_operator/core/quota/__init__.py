"""Requests quota of Kueue for jobs, and decides whether a job may have pods and on which nodes."""
