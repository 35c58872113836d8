"""What the operator decides, from what it has observed and the time.

No input or output, no clock, no randomness.
"""
