"""The key-value store and the barriers that the processes of one world share."""
