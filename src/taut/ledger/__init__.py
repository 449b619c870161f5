"""Everything → entries that sum to the bill."""

from taut.ledger.charge import CATEGORIES, Ledger, Prices, charge

__all__ = ["CATEGORIES", "Ledger", "Prices", "charge"]
