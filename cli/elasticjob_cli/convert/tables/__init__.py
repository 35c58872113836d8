"""What becomes of each field, option, annotation and variable of the other operators' jobs."""
