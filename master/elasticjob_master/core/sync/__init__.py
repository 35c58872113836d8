"""What the processes of one world share: a key-value store and barriers."""
