"""The rendezvous decides which members train together in a world. `advance` is its entry."""
