"""A remote shell from a launcher to its workers, through their agents and the master.

It needs no server, no port and no keys.
"""
