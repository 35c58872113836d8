"""The parts that all packages share: custom resource types, gRPC stubs, names and limits."""
