"""What a user does with jobs, for the command line and for programs.

The API server is asked, never the operator.
"""
