"""Cells of the ledger → lines with money, joules and carbon that close to what was invoiced."""
