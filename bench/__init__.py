"""How fast the operator is, as ratios to what the API server itself can do on the same machine (`make bench`)."""
