"""The Kubernetes session that operator, master and CLI share.

Raw JSON over the official client's connection.
"""
