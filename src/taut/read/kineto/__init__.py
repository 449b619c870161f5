"""PyTorch Kineto traces."""
