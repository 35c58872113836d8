"""The embedded cluster.

A real control plane and a node that runs containers as processes, for one ordinary user.
"""
