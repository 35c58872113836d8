"""Decides for the operator, from the observed state and the time.

No input or output, no clock, no randomness.
"""
