"""Changes of size and resources: requests become ScalePlans in one queue, and one plan at a time is executed."""
