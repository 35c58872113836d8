"""The agent: process 1 of a member's container, which runs the training command in its worlds."""

VERSION = "0.1.0"
LIBRARY = "library"
"""The folder of an installed agent with the packages that a training process imports."""
