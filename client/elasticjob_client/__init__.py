"""What a user does with jobs, for the command line and for programs: the API server is asked, never the operator."""
