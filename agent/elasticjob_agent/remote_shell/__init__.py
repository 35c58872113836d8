"""A remote shell from a launcher to its workers, through their agents and the master.

No server, no port, no keys.
"""
