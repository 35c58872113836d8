"""Generators of files in this repository: CRDs, docs/api.md, stubs, manifests.

Run by `make generate`; not shipped.
"""
