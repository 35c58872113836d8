"""What outlives a master: the stored state, where it is stored and when."""
