"""What is wrong with a bill, one file per kind: each finds charges, and says what they move."""
