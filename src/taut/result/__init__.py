"""What ``--json`` prints: the types, and what builds them."""
