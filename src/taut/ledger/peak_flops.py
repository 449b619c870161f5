"""Dense peaks of accelerators by type of element, 10^12 FLOPs a second, from the data sheets of their makers.

Without sparsity, at the boost clocks that the data sheet assumes. A name fits the first line whose words it holds.
NVIDIA: data sheets of V100, T4, A10, A30, A40, A100, L4, L40, L40S, H100, H200, H20, DGX B200 and GB200 NVL72; half of what is
given with sparsity. AMD: data sheets of Instinct MI100, MI210, MI250X (each of its two dies is a device), MI300X, MI325X,
MI350X and MI355X, matrix figures.
"""

from __future__ import annotations

import re

Peaks = dict[str, float]
_A100: Peaks = {"bf16": 312, "fp16": 312, "tf32": 156, "fp32": 19.5, "fp64": 19.5}
_H100: Peaks = {"bf16": 989, "fp16": 989, "tf32": 494.5, "fp32": 67, "fp8": 1979, "fp64": 67}
_H100_NVL: Peaks = {"bf16": 835.5, "fp16": 835.5, "tf32": 417.5, "fp32": 60, "fp8": 1670.5, "fp64": 60}
_MI300: Peaks = {"bf16": 1307.4, "fp16": 1307.4, "tf32": 653.7, "fp32": 163.4, "fp8": 2614.9, "fp64": 163.4}

PEAKS: tuple[tuple[str, Peaks], ...] = (
    ("GB200", {"bf16": 2500, "fp16": 2500, "tf32": 1250, "fp32": 80, "fp8": 5000, "fp64": 40}),
    ("B200", {"bf16": 2250, "fp16": 2250, "tf32": 1125, "fp32": 75, "fp8": 4500, "fp64": 37}),
    ("H200 NVL", _H100_NVL),
    ("GH200", _H100),
    ("H200", _H100),
    ("H100 NVL", _H100_NVL),
    ("H100 PCIe", {"bf16": 756, "fp16": 756, "tf32": 378, "fp32": 51, "fp8": 1513, "fp64": 51}),
    ("H100", _H100),
    ("H800", {**_H100, "fp64": 1}),
    ("H20", {"bf16": 148, "fp16": 148, "tf32": 74, "fp32": 44, "fp8": 296, "fp64": 1}),
    ("A100", _A100),
    ("A800", _A100),
    ("A40", {"bf16": 149.7, "fp16": 149.7, "tf32": 74.8, "fp32": 37.4}),
    ("A30", {"bf16": 165, "fp16": 165, "tf32": 82, "fp32": 10.3, "fp64": 10.3}),
    ("A10G", {"bf16": 70, "fp16": 70, "tf32": 35, "fp32": 35}),
    ("A10", {"bf16": 125, "fp16": 125, "tf32": 62.5, "fp32": 31.2}),
    ("L40S", {"bf16": 362, "fp16": 362, "tf32": 183, "fp32": 91.6, "fp8": 733}),
    ("L40", {"bf16": 181, "fp16": 181, "tf32": 90.5, "fp32": 90.5, "fp8": 362}),
    ("L4", {"bf16": 121, "fp16": 121, "tf32": 60, "fp32": 30.3, "fp8": 242.5}),
    ("V100S", {"fp16": 130, "fp32": 16.4, "fp64": 8.2}),
    ("V100-PCIE", {"fp16": 112, "fp32": 14, "fp64": 7}),
    ("V100", {"fp16": 125, "fp32": 15.7, "fp64": 7.8}),
    ("T4", {"fp16": 65, "fp32": 8.1}),
    ("MI355X", {"bf16": 2516.6, "fp16": 2516.6, "fp32": 157.3, "fp8": 5033.2, "fp64": 78.6}),
    ("MI350X", {"bf16": 2306.9, "fp16": 2306.9, "fp32": 144.2, "fp8": 4613.7, "fp64": 72.1}),
    ("MI325X", _MI300),
    ("MI300X", _MI300),
    ("MI250X", {"bf16": 191.5, "fp16": 191.5, "fp32": 47.9, "fp64": 47.9}),
    ("MI210", {"bf16": 181, "fp16": 181, "fp32": 45.3, "fp64": 45.3}),
    ("MI100", {"bf16": 92.3, "fp16": 184.6, "fp32": 46.1, "fp64": 11.5}),
)
_TYPES = (
    ("float8", "fp8"), ("bfloat16", "bf16"), ("half", "fp16"), ("float16", "fp16"), ("double", "fp64"), ("float64", "fp64"),
    ("float", "fp32"),
)  # fmt: skip


def peaks_of(device: str) -> Peaks | None:
    """The peaks of an accelerator by its name; None if it is not known."""
    said = device.lower()
    for name, peaks in PEAKS:
        # Most names are not in it at all, and to compile their patterns takes longer than all else here.
        if name.lower() in said and re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", device, re.IGNORECASE):
            return peaks
    return None


def element_type(dtype: str) -> str | None:
    """The type of elements as torch writes it (``c10::BFloat16``, ``float``) in the words of the table."""
    word = dtype.lower().removeprefix("c10::")
    return next((name for start, name in _TYPES if word.startswith(start)), None)
