"""What all parts share: custom resource types, gRPC stubs, names of labels, ports and variables, and shared limits."""
