"""Serves gRPC to agents and users, and HTTPS to Horovod, browsers and Prometheus."""
