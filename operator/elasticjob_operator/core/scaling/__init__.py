"""Changes of size and resources: from requests to one queue of ScalePlans, and each plan to its end."""
