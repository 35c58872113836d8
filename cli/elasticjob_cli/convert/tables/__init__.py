"""What becomes of each field of another operator: a file per peer, with a table per kind."""
