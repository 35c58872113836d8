"""Lists deliberate mistakes; a test must fail for each of them."""
