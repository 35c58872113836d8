"""Changes of size and resources.

Requests become ScalePlans in one queue, and one plan at a time is executed.
"""
