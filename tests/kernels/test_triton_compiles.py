"""The GPU kernels through Triton's compiler, which needs no GPU: types, layouts, memory, machine code."""

import importlib.util

import pytest

from electra_cli.kernels.masked_sampling.reference import BLOCK

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
]

IDS = ("target", "forbidden", "block_of", "sampled")
SIZES = ("num_rows", "num_ids", "num_blocks", "table_rows")
DOUBLES = ("uniform", "rest")

# What a program may have on a GeForce of 2020 and on an H100.
SHARED_BYTES = {86: 101_376, 90: 232_448}


def compiled(kernel, dtype: str, constants: dict[str, int], capability: int, **options: int):
    """The kernel for a card that need not be there."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    def kind(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name in SIZES:
            return "i32"
        if name == "temperature":
            return "fp32"
        if name in IDS:
            return "*i64"
        if name in DOUBLES:
            return "*fp64"
        return f"*{dtype}" if name in ("hidden", "table") else "*fp32"

    source = ASTSource(
        fn=kernel,
        signature={name: kind(name) for name in kernel.arg_names},
        constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
    )
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("width", [128, 768])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("name", ["block_statistics", "hidden_gradient", "table_gradient"])
def test_tiles_compile_and_fit_the_card(name, dtype, width, capability):
    from electra_cli.kernels.masked_sampling import triton_kernels, triton_launch

    blocks = triton_launch.FLOAT_BLOCKS if dtype == "fp32" else triton_launch.HALF_BLOCKS
    constants = {"WIDTH": width, "ROWS": blocks.rows, "IDS": BLOCK, "PART": blocks.part, "WIDEN": False}
    if name == "block_statistics":
        constants |= {"HAS_FORBIDDEN": True, "IS_TEMPERED": True}
    else:
        constants["OUT"] = blocks.out
    made = compiled(
        getattr(triton_kernels, name),
        dtype,
        constants,
        capability,
        num_warps=blocks.num_warps,
        num_stages=blocks.num_stages,
    )
    assert "cubin" in made.asm
    assert made.metadata.shared <= SHARED_BYTES[capability]
    # TF32 products would be named so.
    assert ".tf32" not in made.asm["ptx"]


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_rows_compile(dtype):
    from electra_cli.kernels.masked_sampling import triton_kernels

    choose = {"ROWS": 1, "HAS_FORBIDDEN": True}
    for blocks in (16, 256, 2048):
        constants = {**choose, "BLOCKS": blocks, "DRAWS": True}
        assert "cubin" in compiled(triton_kernels.combine_blocks, dtype, constants, 80, num_warps=4).asm
    constants = {**choose, "WIDTH": 768, "IDS": BLOCK, "PART": 64}
    assert "cubin" in compiled(triton_kernels.draw_in_block, dtype, constants, 80, num_warps=4).asm
