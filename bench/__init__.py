"""Measures the operator and the master, as ratios to bare requests of the same run (`make bench`)."""
