"""Manifests of the objects that the operator creates for a job, pods and infrastructure.

And their validation.
"""
