"""What all sides speak: custom resource types, gRPC stubs, and the names of labels, ports and environment variables."""
