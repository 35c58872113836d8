"""Measures operator and master, as ratios to bare requests of the same run (`make bench`)."""
