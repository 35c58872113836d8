"""Generators of CRDs, admission policies, gRPC stubs, docs and manifests.

`make generate` runs them. They are not shipped.
"""
