"""Everything → entries that sum to the bill."""

from taut.core.prices import Prices
from taut.ledger.charge import CATEGORIES, Ledger, charge

__all__ = ["CATEGORIES", "Ledger", "Prices", "charge"]
