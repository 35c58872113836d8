"""Which members train together: membership, worlds one after the other, and what each agent is commanded."""
