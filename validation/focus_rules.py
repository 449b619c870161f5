"""Rules that taut says a FOCUS bill breaks, beside what focus-validator says, as Markdown.

    python validation/focus_rules.py focus_sample.csv --v1 v1/bin/focus-validator --v2 v2/bin/focus-validator

First the bill that is given (version 1.0) beside focus-validator 1.0.0; then a bill of 1.2 beside 2.2.1, in which each row
breaks one rule and keeps the others. Installing the two validators is described in validation/focus_written.py.
"""

from __future__ import annotations

import argparse
import csv
import io
import tempfile
from pathlib import Path

from focus_written import CONTRADICTORY, CRITERIA, charges, failed, render, usage

from taut.read.focus.focus_reader import read_focus

PLAN = {"CommitmentDiscountId": "c", "CommitmentDiscountCategory": "Spend", "CommitmentDiscountType": "Plan",
        "CommitmentDiscountStatus": "Used", "CommitmentDiscountQuantity": "1", "CommitmentDiscountUnit": "USD"}  # fmt: skip
TAX = {"ChargeCategory": "Tax", **dict.fromkeys((
    "PricingCategory", "PricingQuantity", "PricingUnit", "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuPriceId",
    "SkuMeter", "SkuPriceDetails", "ConsumedQuantity", "ConsumedUnit", "PricingCurrencyListUnitPrice",
    "PricingCurrencyContractedUnitPrice",
), "")}  # fmt: skip
# fmt: off
BREAKS: dict[str, dict[str, str]] = {
    "ContractedCost-C-003-M": {"ContractedCost": ""}, "InvoiceIssuerName-C-003-M": {"InvoiceIssuerName": ""},
    "ChargeCategory-C-003-M": {"ChargeCategory": "usage", "ConsumedQuantity": "", "ConsumedUnit": ""},
    "ChargeClass-C-005-C": {"ChargeClass": "Refund"}, "ChargeFrequency-C-003-M": {"ChargeFrequency": "Usage-based"},
    "PricingCategory-C-007-M": {"PricingCategory": "On-Demand"}, "ServiceCategory-C-003-M": {"ServiceCategory": "GPU"},
    "BillingCurrency-C-003-M": {"BillingCurrency": "Euro"}, "ListUnitPrice-C-008-M": {"ListUnitPrice": "-1", "ListCost": "-1"},
    "ChargePeriodEnd-C-002-M": {"ChargePeriodEnd": "2026-10-01 01:00:00"}, "ListCost-C-009-C": {"ListCost": "99"},
    "ContractedCost-C-009-C": {"ContractedCost": "99"}, "SkuPriceId-C-005-C": {"SkuPriceId": "", "SkuPriceDetails": ""},
    "SkuId-C-005-C": {"SkuId": "", "SkuMeter": ""}, "PricingUnit-C-006-C": {"PricingUnit": ""},
    "ConsumedUnit-C-006-C": {"ConsumedUnit": ""}, "ConsumedQuantity-C-006-C": {"ConsumedQuantity": "", "ConsumedUnit": ""},
    "SkuId-C-004-C": TAX | {"SkuId": "s"}, "PricingQuantity-C-004-C": TAX | {"PricingQuantity": "1", "PricingUnit": "Hours"},
    "ConsumedQuantity-C-004-C": TAX | {"ConsumedQuantity": "1", "ConsumedUnit": "Hours"},
    "CommitmentDiscountCategory-C-004-C": PLAN | {"CommitmentDiscountCategory": ""},
    "CommitmentDiscountType-C-005-C": PLAN | {"CommitmentDiscountType": ""},
    "CommitmentDiscountStatus-C-005-M": PLAN | {"CommitmentDiscountStatus": "Idle"},
    "CommitmentDiscountQuantity-C-005-C": PLAN | {"CommitmentDiscountQuantity": "", "CommitmentDiscountUnit": ""},
    "CommitmentDiscountQuantity-C-007-C": {"CommitmentDiscountQuantity": "1", "CommitmentDiscountUnit": "USD"},
    "CommitmentDiscountUnit-C-006-C": PLAN | {"CommitmentDiscountUnit": ""},
    "CommitmentDiscountName-C-004-C": {"CommitmentDiscountName": "x"},
    "ChargeFrequency-C-004-C": {"ChargeCategory": "Purchase", "ConsumedQuantity": "", "ConsumedUnit": "", "EffectiveCost": "0"},
    "ResourceType-C-005-C": {"ResourceType": ""}, "RegionName-C-004-C": {"RegionId": ""},
    "SubAccountType-C-005-C": {"SubAccountType": ""}, "SkuMeter-C-004-C": {"SkuId": ""}, "Tags-C-001-M": {"Tags": "{team: a}"},
    "BillingAccountType-C-005-C": {"BillingAccountType": ""}, "SkuPriceDetails-C-001-M": {"SkuPriceDetails": "[1]"},
}
# fmt: on


def rows() -> list[dict[str, str]]:
    """Cells of charges that keep all rules: one of every kind, then as many hours of usage as there are rules to break."""
    out = io.BytesIO()
    render([*charges(), *(usage(200 + i) for i in range(len(BREAKS)))], out, "1.2")
    return list(csv.DictReader(io.StringIO(out.getvalue().decode())))


def broken_bill(path: Path) -> None:
    """A bill in which each rule is broken by one row."""
    cells = rows()
    for row, change in zip(cells[-len(BREAKS) :], BREAKS.values(), strict=True):
        row.update(change)
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(cells[0]))
        writer.writeheader()
        writer.writerows(cells)


def main() -> None:
    """Print both tables."""
    options = argparse.ArgumentParser()
    options.add_argument("bill", nargs="?", default="")
    options.add_argument("--v1", default="", help="focus-validator 1.0.0")
    options.add_argument("--v2", default="", help="focus-validator 2.2.1")
    given = options.parse_args()
    if given.bill:
        found = read_focus(given.bill)
        ours = {one.validator: one for one in (*found.broken, *found.disputed) if one.validator}
        wrong, _ = (
            failed(given.v1, "--data-file", str(Path(given.bill).absolute()), "--validate-version", "1.0")
            if given.v1
            else ([], "")
        )
        print(f"{Path(given.bill).name}: {len(wrong)} rules by focus-validator 1.0.0, {len(found.broken)} by taut\n")
        print("| focus-validator 1.0.0 | taut | rows | by the specification |\n|---|---|---:|---|")
        for rule in sorted({*wrong, *ours}):
            one = ours.get(rule)
            cells = (one.rule, str(one.rows or ""), "no" if one in found.disputed else "yes") if one else ("missing", "", "")
            print(f"| {rule if rule in wrong else ''} | {' | '.join(cells)} |")
        more = [one.rule for one in found.broken if not one.validator]
        print(f"\nBeyond these, by the specification: {', '.join(more)}.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "broken.csv"
        broken_bill(path)
        ours_12 = {one.rule for one in read_focus(path).broken}
        extra = ["--block-download", "--focus-dataset", "CostAndUsage", "--applicability-criteria", CRITERIA]
        theirs, _ = failed(given.v2, "--data-file", str(path), "--validate-version", "1.2", *extra) if given.v2 else ([], "")
    print(f"\n{len(BREAKS)} rules of 1.2, each broken by one row:\n\n| | rules |\n|---|---|")
    print(f"| named by taut | {len(ours_12 & set(BREAKS))} |")
    print(f"| named by focus-validator 2.2.1 | {len(set(theirs) & set(BREAKS))} |")
    print(f"| not named by taut | {', '.join(sorted(set(BREAKS) - ours_12)) or 'none'} |")
    print(f"| named by taut beyond these | {', '.join(sorted(ours_12 - set(BREAKS))) or 'none'} |")
    print(f"| not named by focus-validator | {', '.join(sorted(set(BREAKS) - set(theirs))) or 'none'} |")
    more = sorted({*theirs} - {*BREAKS, *CONTRADICTORY} - ours_12)
    print(f"| named by focus-validator alone | {', '.join(more) or 'none'} |")


if __name__ == "__main__":
    main()
