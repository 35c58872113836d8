"""Submits, lists, scales and follows jobs, for the command line and for programs.

It sends requests to the API server and to the masters of jobs, never to the operator.
"""
