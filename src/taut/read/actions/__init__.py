"""Control logs: decisions of controllers."""
