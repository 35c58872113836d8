"""Stores the state that outlives a master: its form, its place, and the times of its writes."""
