"""What unchanged Horovod processes need in place of a launcher.

A rendezvous on a local port, and notifications.
"""
