"""What unchanged Horovod processes need in place of a launcher: a rendezvous on a local port, and notifications."""
