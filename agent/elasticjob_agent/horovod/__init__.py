"""Serves unchanged Horovod processes in place of Horovod's launcher.

A rendezvous on a local port, and notifications.
"""
