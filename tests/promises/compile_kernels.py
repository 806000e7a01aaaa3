"""Compiles every Triton kernel for GPUs that need not be there: python compile_kernels.py 80 90"""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from letsam import kernels

TABLES = (
    "theta",
    "backup",
    "new",
    "old",
    "u",
    "a",
    "b",
    "g",
    "h",
    "m",
    "v",
    "tensor_of",
    "start_of",
    "size_of",
    "index_of",
    "length_of",
    "first_of",
)
TYPES = dict.fromkeys(TABLES, "*i64") | {
    "s": "*fp64",
    "done": "*i32",
    "found": "*fp64",
    "out": "*fp32",
    "norms": "*fp32",
    "xi": "fp32",
    **dict.fromkeys(("keep", "alpha", "rate", "beta1", "rest1", "beta2", "rest2", "eps"), "fp32"),
    **dict.fromkeys(("c1_of", "c2_of"), "*fp64"),
    "finite": "*i1",
}


def compiled(kernel, capability, types=TYPES, **constants):
    """The PTX of a kernel; its tables are pointers to numbers, what is given by name is fixed."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    fixed = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs={})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]


for capability in map(int, sys.argv[1:]):
    for number in (tl.float32, tl.bfloat16, tl.float16):
        for keep in (True, False):
            ptx = compiled(kernels._move, capability, KEEP=keep, THETA=number, U=number, BLOCK=kernels.BLOCK)
            assert "ld.global.v4" in ptx  # 16 bytes a load: what the speed hangs on
            assert "st.global.v4" in ptx
        assert "ld.global.v4" in compiled(kernels._squares, capability, A=number, BLOCK=kernels.BLOCK)
        assert "ld.global.v4" in compiled(kernels._products, capability, A=number, B=number, BLOCK=kernels.BLOCK)
        ptx = compiled(kernels._carry, capability, NEW=number, OLD=number, BLOCK=kernels.BLOCK)
        assert "ld.global.v4" in ptx
        assert "st.global.v4" in ptx
        ptx = compiled(kernels._across, capability, A=number, B=number, BLOCK=kernels.BLOCK)
        assert "ld.global.v4" in ptx
        assert "st.global.v4" in ptx
        ptx = compiled(kernels._surrogate, capability, G=number, H=number, BLOCK=kernels.BLOCK)
        assert "ld.global.v4" in ptx
        assert "st.global.v4" in ptx
        types = dict.fromkeys(("B", "G", "M", "V", "OUT"), number)
        ptx = compiled(kernels._adam, capability, TYPES | {"out": "*i64"}, **types, BLOCK=kernels.BLOCK)
        assert "ld.global.v4" in ptx
        assert "st.global.v4" in ptx
        compiled(kernels._adaptive, capability, THETA=number, G=number, U=number, BLOCK=kernels.BLOCK)
        compiled(kernels._filter_norms, capability, THETA=number, BLOCK=1024)
print("compiled")
