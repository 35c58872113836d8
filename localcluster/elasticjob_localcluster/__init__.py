"""The embedded cluster: a real control plane and a node that runs containers as processes, for one ordinary user."""
