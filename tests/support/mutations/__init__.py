"""Mistakes that are made on purpose in one place; a test must fail for each of them."""
