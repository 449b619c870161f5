"""The audit trail: an append-only log of records, the proofs that nothing in it was changed, and who signed it."""
