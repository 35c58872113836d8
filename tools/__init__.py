"""Generators of CRDs, admission policies, gRPC stubs, docs and manifests. `make generate` runs them; they are not shipped."""
