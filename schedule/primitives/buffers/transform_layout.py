"""transform_layout: a temporary gets another shape and order of elements."""

from __future__ import annotations

from tir.ir import PrimFunc
from tir.traverse import stored_names

from ...primitive import BlockName, BufferOfBlock, find_block, is_parameter, need_not_parameter, primitive
from ...rewriting.index_map import MapOfIndices, PadValue, parse_index_map
from ...rewriting.layouts import buffer_argument, transformed_layout, with_parameter_layout


@primitive
def transform_layout(
    func: PrimFunc,
    block: BlockName,
    buffer: BufferOfBlock,
    index_map: MapOfIndices,
    pad_value: PadValue = None,
    preserve_unit_iters: bool = False,
    of_caller: bool = False,
) -> tuple[PrimFunc, None]:
    """Store the element [i, j, ...] of a temporary at [index_map(i, j, ...)], everywhere in the function.

    The buffer is `("read", n)` or `("write", n)`, number n, from 0, of those that `block` reads or writes, or a name. The index
    map is a function such as `lambda i, j: (i // 16, j, i % 16)`, its text, or a `tir.IndexMap`. Here that is
    `IndexMap.identity(2).tile(0, 16).permute(0, 2, 1)`. Outputs are indices, their quotients and remainders by constants, and
    sums in mixed radix: `i * 13 + j` for j < 13. If a tile does not divide the extent, the last one is padded with
    `pad_value`, a number or a function of the new indices. A producer that writes the whole buffer in loops of its own writes the
    padding, too: its loops run over the new shape. Else a new block writes it before the first use. Variables of extent 1 become
    constants in the indices, unless `preserve_unit_iters` is set. `IndexMap.AXIS_SEPARATOR` between outputs begins a group of
    dimensions, as for `set_axis_separator`. With `of_caller` a parameter may change its layout, too. The function is then called
    with arrays of the new shape, whose padding is neither read nor written.

    Rewrite   X = T.alloc_buffer((N,));  S(X[i])
           => X = T.alloc_buffer((ceil(N / 16), 16));  S(X[i // 16, i % 16])
    Legal     if the buffer is a temporary, or `of_caller` is set, or the index map is the identity. The index map is provably one
              to one; of the constants that divide one index, each is a multiple of the smaller ones. A padded temporary needs a
              `pad_value` of its dtype, which reads no memory.
    Example   chain: s.transform_layout("C", ("read", 0), lambda i, j: (j, i))
    """
    user = find_block(func, block)
    target = buffer_argument(user, buffer)
    mark = (user, f"uses {target.name}")
    how = "cache_write" if target.name in stored_names(user) else "cache_read"
    hint = f"{how} makes a copy whose layout is free"
    mapping = parse_index_map(index_map, func, target.shape)
    if not of_caller and mapping.outputs != mapping.inputs:
        need_not_parameter(func, target, "its layout is the caller's", mark, f"{hint}, and of_caller=True changes what is passed")
    if is_parameter(func, target.name):
        return with_parameter_layout(func, target, mapping, preserve_unit_iters), None
    return transformed_layout(func, target, mapping, pad_value, mark, units=preserve_unit_iters), None
