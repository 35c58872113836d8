"""The operator: watches jobs and plans, decides purely (core/), and carries decisions out."""
