"""The master's decisions, pure: time is an argument, and commands and messages are values."""
