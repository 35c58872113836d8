"""The objects that the operator creates: pods and what they need around them, from the user's templates."""
