"""The rendezvous.

Which agents are members, which of them train together in a world, and the commands they get.
"""
