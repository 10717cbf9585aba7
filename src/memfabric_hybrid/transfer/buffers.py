"""What Python objects are as memory: an address and a size."""

from __future__ import annotations

from memfabric_hybrid.errors import InvalidParam


def extent(buffer: object, *, writable: bool) -> tuple[int, int, object]:
    """(address, bytes, what keeps it alive) of a contiguous object with the buffer protocol, or of a torch CPU tensor.

    InvalidParam for one that is not contiguous or empty, or that is read-only (`bytes`, such an array) and should not
    be: Python relies on such memory not changing. TypeError for what is no memory at all.
    """
    if hasattr(buffer, "data_ptr"):
        return _tensor_extent(buffer)
    import ctypes  # here: most programs pass addresses

    try:
        view = memoryview(buffer)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"a {type(buffer).__name__} is neither a buffer nor a tensor") from None
    if not view.c_contiguous or view.nbytes == 0:
        raise InvalidParam(f"a buffer of {view.nbytes} bytes must be contiguous and not empty")
    if view.readonly:
        if writable:
            raise InvalidParam(
                f"this {type(buffer).__name__} is read-only, and peers may write into registered memory: register a "
                "writable copy of it (a bytearray, array.copy()), or its address with register_memory if no peer writes"
            )
        import numpy as np

        return int(np.frombuffer(view.cast("B"), np.uint8).ctypes.data), view.nbytes, view
    return ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes, view


def _tensor_extent(tensor: object) -> tuple[int, int, object]:
    device = getattr(tensor, "device", None)
    if device is not None and str(getattr(device, "type", device)) != "cpu":
        raise InvalidParam(f"the tensor is on {device}, expected one in host memory")
    if not tensor.is_contiguous():  # type: ignore[attr-defined]
        raise InvalidParam("the tensor is not contiguous: register tensor.contiguous(), or its storage")
    size_bytes = tensor.numel() * tensor.element_size()  # type: ignore[attr-defined]
    if size_bytes == 0:
        raise InvalidParam("the tensor is empty")
    return int(tensor.data_ptr()), int(size_bytes), tensor  # type: ignore[attr-defined]
