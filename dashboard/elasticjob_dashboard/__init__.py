"""The dashboard: a page, and the data that it shows.

A job's master serves both. The client serves both from stored answers if the job has no master.
"""
