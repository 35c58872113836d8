"""The control plane of the embedded cluster.

Kubernetes' own programs as processes of an ordinary user.
"""
