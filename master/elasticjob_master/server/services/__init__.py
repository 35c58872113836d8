"""The gRPC services: each translates between the wire and the controller, and decides nothing."""
