"""What writes generated files: definitions, reference, stubs, manifests. Run by `make generate`; never shipped."""
