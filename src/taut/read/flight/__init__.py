"""Flight-recorder dumps and NCCL Inspector logs."""
