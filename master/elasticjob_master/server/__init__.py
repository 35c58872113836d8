"""What the master serves: gRPC to agents and users, HTTPS to Horovod, browsers and Prometheus."""
