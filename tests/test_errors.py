import pytest

from s6mod.errors import ResourceError, memory_for


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        RuntimeError("unable to mmap 93704 bytes from file </a.part>: Cannot allocate memory (12)"),
        RuntimeError("could not create a primitive"),  # oneDNN's way to say so
        RuntimeError("can't start new thread"),  # no room for its stack
        SystemError("error return without exception set"),  # NumPy's sums
    ],
)
def test_memory_that_runs_out_is_told_with_what_to_do(error):
    with (
        pytest.raises(ResourceError, match=r"expected enough memory for a test, got: .+; do less"),
        memory_for("a test", "do less"),
    ):
        raise error


def test_any_other_error_is_left_as_it_is():
    with pytest.raises(RuntimeError, match="a bug of ours"), memory_for("a test", "do less"):
        raise RuntimeError("a bug of ours")
