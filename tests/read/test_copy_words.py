"""Words for copies."""

from __future__ import annotations

import pytest

from taut.read.copy_words import copy_class, is_memory


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("Memcpy HtoD (Pageable -> Device)",), "copy h2d"),
        (("Memcpy HtoD (Pinned -> Device)",), "copy h2d"),
        (("Memcpy DtoH (Device -> Pageable)",), "copy d2h"),
        (("Memcpy DtoD (Device -> Device)",), "copy d2d"),
        (("Memcpy PtoP (Device -> Device)",), "copy d2d"),
        (("Memcpy HtoH (Pinned -> Pageable)",), "copy h2h"),
        (("Memcpy DtoA (Device -> Array)",), "copy d2d"),
        (("Memcpy M2D (MEMORY(Unknown) -> DEVICE)",), "copy h2d"),
        (("Memcpy D2M",), "copy d2h"),
        (("Memset (Device)",), "set"),
        (("Memset (Unknown)", "Device"), "set"),
        (("CopyHostToDevice",), "copy h2d"),
        (("CopyDeviceToDevice",), "copy d2d"),
        (("FillBuffer",), "set"),
        (("dma_request", None, "HOST_TO_DEVICE"), "copy h2d"),
        (("dma_request", None, "DEVICE_TO_HOST"), "copy d2h"),
        (("hipMemcpyAsync", "DtoH"), "copy d2h"),
        (("memcpyHtoDAsync",), "copy h2d"),
        (("Memcpy (Unknown -> Unknown)",), "copy"),
        (("Memcpy Unknown (Unknown -> Device)",), "copy"),
        (("memcpy", 3), "copy"),
        (("memcpy128",), "copy d2d"),
        (("memset32_post",), "set"),
        (("",), "copy"),
    ],
)
def test_the_class_of_a_copy(words: tuple[str, ...], found: str) -> None:
    """From its name or else its arguments; pageable or pinned make no further class."""
    assert copy_class(*words) == found


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("Memcpy DtoD (Device -> Device)", True),
        ("memcpy32_post", True),
        ("memset32_post", True),
        ("__amd_rocclr_copyBuffer", True),
        ("[CUDA memcpy HtoD]", True),
        ("memcpy_and_scale_kernel", False),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", False),
    ],
)
def test_kernels_that_only_copy_or_fill(name: str, moves: bool) -> None:
    """Drivers copy with kernels of their own inside graphs."""
    assert is_memory(name) == moves
