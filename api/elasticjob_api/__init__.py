"""What all parts share.

Custom resource types, gRPC stubs, names of labels, ports and variables, and shared limits.
"""
