"""The dashboard: a page, the data that it shows, and the stream that keeps it current.

A job's master serves all three. The client serves them from a master's or from stored answers.
"""
