"""Declarations of buffers in a script: parameters, allocated memory, views."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arith.prove import provably_equal
from ..arith.simplify import simplify
from ..ir.blocks import Block
from ..ir.buffers import Buffer, Region, are_axis_separators, const_shape
from ..ir.expressions import TRUE, Const, Expr, binary, const
from ..ir.foreign import Address
from ..ir.statements import Allocate, Store, seq
from . import namespace
from .draft import Draft, Wrapper
from .expressions import Arguments, Expressions
from .values import Handle, Pointer, as_region
from .views import ArrayView, Reshaped, Subview, element_count


@dataclass(frozen=True, slots=True)
class Buffers:
    """Reader of the declarations of buffers of a function."""

    read: Expressions
    draft: Draft

    def match_buffer(self, name: str, given: Arguments) -> None:
        param = as_region(given.value("param"))
        if isinstance(param, Region):
            self.read.scopes.bind(name, self.declaration(given, param))
            return
        view = self.declaration(given)
        if not isinstance(param, Handle):
            raise given.error(f"`{self.read.text(given['param'])}` is neither a handle nor a region", at="param")
        if param.buffer is not None:
            raise given.error(f"`{param.name}` has a shape already", "another view is T.Buffer(shape, data=A.data)")
        if "shape" not in given:
            raise given.error(f"`{given.function}`: the shape is missing", f"T.match_buffer({param.name}, (128, 128))")
        param.buffer = self._declare(name, view.buffer)

    def alloc_buffer(self, name: str, given: Arguments) -> None:
        view, header = self.declaration(given), self.draft.header
        if "data" in given:
            raise given.error("T.alloc_buffer makes memory of its own", "T.Buffer(shape, data=...) is a view", at="data")
        header.allocs.append(self._declare(name, view.buffer.with_(shape=tuple(map(header.closed, view.shape)))))

    def allocate(self, name: str, given: Arguments) -> Wrapper:
        extents = self._shape(given["extents"])
        if "condition" in given and given.value("condition") not in (True, TRUE):
            raise given.error("memory is allocated always, not under a condition", at="condition")
        pointer = self._memory(name, given, extents)
        return lambda rest: Allocate(pointer.array, rest)

    def allocate_const(self, name: str, given: Arguments) -> Wrapper:
        values = np.asarray(given.value("data"), object).reshape(-1).tolist()
        extents = self._shape(given["extents"]) if "extents" in given else (Const(len(values)),)
        if element_count(extents) != Const(len(values)):
            raise given.error(f"{len(values)} number(s) for the extents ({', '.join(map(str, extents))})")
        buffer, label = self._memory(name, given, extents).array, self.draft.names.block(name)
        self.draft.header.allocs.append(buffer)
        stores = [
            Store(buffer, tuple(map(Const, map(int, place))), self.read.guard(const, given.call, value, buffer.dtype))
            for place, value in zip(np.ndindex(*const_shape(buffer)), values, strict=True)
        ]
        return lambda rest: seq(Block(label, (), seq(*stores)), rest)

    def decl_buffer(self, name: str, given: Arguments) -> Wrapper | None:
        """A view of memory, or without `data` a buffer for the statements that follow."""
        view = self.declaration(given)
        stated, data, allocated = view.buffer, given.nodes.get("data"), None
        if isinstance(data, ast.Call) and self.read.form(data) is namespace.allocate:
            allocated = self.allocate(name, self.read.arguments(namespace.allocate, data))
            memory = self.read.scopes.local(name)
        else:
            memory = given.value("data")
        if memory is None:
            if given.form is namespace.Buffer:
                hint = f"{name} = T.Buffer(shape, data=A.data), or T.alloc_buffer(shape)"
                raise given.error("a view says whose elements it shows", hint)
            buffer = self._declare(name, stated)
            return lambda rest: Allocate(buffer, rest)
        offset = given.integer("elem_offset") if "elem_offset" in given else Const(0)
        base = self._viewed(name, memory, stated, given)
        if stated.dtype != base.dtype:
            reason = f"a view of `{base.name}` as {stated.dtype}, but it holds {base.dtype}"
            raise given.error(reason, "bits cannot be reinterpreted")
        room, needed = element_count(base.shape), simplify(binary("+", element_count(view.shape), offset))
        if isinstance(room, Const) and isinstance(needed, Const) and needed.value > room.value:
            raise given.error(f"a view up to element {needed.value} of `{base.name}`, which has {room.value}")
        same = view.shape == base.shape and offset == Const(0)
        self.read.scopes.bind(name, base if same else Reshaped(base, view.shape, offset))
        return allocated

    def _viewed(self, name: str, memory: Any, stated: Buffer, given: Arguments) -> Buffer:
        """The buffer behind the memory of a view."""
        match memory:
            case Pointer():
                if "scope" in given and stated.scope != memory.scope:
                    raise given.error(f"`{memory.name}` is in {memory.scope}, not {stated.scope}", at="scope")
                return memory.viewed_as(stated.shape, element_count(memory.extents))
            case Handle():
                if memory.buffer is None:
                    memory.buffer = stated.with_(name=self.draft.names.buffer(name))
                return memory.buffer
            case Address(buffer):
                return buffer
        text = self.read.text(given["data"])
        raise given.error(f"`{text}` is no memory", "A.data of a buffer, or what T.allocate made", at="data")

    def declaration(self, given: Arguments, region: Region | None = None) -> ArrayView:
        """A declared buffer, still without a name, or a window on `region`. Sizes in place of strides or offset take
        their values. Declarations that the IR cannot express are errors."""
        shape = self._shape(given["shape"]) if "shape" in given else ()
        for extent in shape:
            if isinstance(extent, Const) and extent.value < 0:
                raise given.error(f"an extent cannot be negative, got {extent}", at="shape")
        dtype, scope, separators = given.dtype(), given.scope(), given.data("axis_separators") or []
        if separators and not are_axis_separators(separators, len(shape)):
            reason = f"axis separators are ascending numbers of dimensions, from 1 to {len(shape) - 1}, got {separators!r}"
            raise given.error(reason, at="axis_separators")
        buffer = Buffer("", shape, dtype, scope, tuple(separators))
        view = Reshaped(buffer, shape) if region is None else self._window(region, buffer, given)
        if "strides" in given and given.value("strides") is not None:
            steps = self._shape(given["strides"])
            if steps and (len(steps) != len(shape) or not all(map(self._stands_for, steps, view.strides))):
                raise given.error("buffers are dense and row-major; strides are not in the dialect", at="strides")
        offset = None if "data" in given else given.value("elem_offset")
        if offset is not None and not self._stands_for(given.integer("elem_offset"), view.first):
            raise given.error("buffers start at their first element; elem_offset is not in the dialect", at="elem_offset")
        if given.value("buffer_type") not in (None, "", "default"):
            raise given.error("broadcasting buffers are not in the dialect", at="buffer_type")
        return view

    def _window(self, region: Region, stated: Buffer, given: Arguments) -> Subview:
        """A part of a buffer under a name of its own: dimensions of extent 1 may be left out."""
        buffer = region.buffer
        if stated.dtype != buffer.dtype:
            raise given.error(f"`{buffer.name}` holds {buffer.dtype}, not {stated.dtype}", f'dtype="{buffer.dtype}"')
        if "scope" in given and stated.scope != buffer.scope:
            raise given.error(f"`{buffer.name}` is in {buffer.scope}, not {stated.scope}")
        extents = tuple(r.extent for r in region.ranges)
        shape = stated.shape if "shape" in given else extents
        dims: list[int] = []  # for each dimension of the shape, the next of the region that is as long
        for d, extent in enumerate(extents):
            if len(dims) < len(shape) and provably_equal(extent, shape[len(dims)], self.read.facts.ranges):
                dims.append(d)
        if len(dims) < len(shape) or any(not e.is_one for d, e in enumerate(extents) if d not in dims):
            found, wanted = (f"({', '.join(map(str, s))})" for s in (extents, shape))
            reason = f"a region of extents {found} is not of shape {wanted}"
            raise given.error(reason, "only dimensions of extent 1 may be left out")
        return Subview(buffer, shape, tuple(r.min for r in region.ranges), tuple(dims))

    def _declare(self, name: str, buffer: Buffer) -> Buffer:
        """Bind a name to a declared buffer, which gets a name like it."""
        return self.read.scopes.bind(name, buffer.with_(name=self.draft.names.buffer(name)))

    def _memory(self, name: str, given: Arguments, extents: tuple[Expr, ...]) -> Pointer:
        """Bind a name to memory, which views give a shape."""
        names = self.draft.names
        memory = Pointer(names.buffer(name), extents, given.dtype(), given.scope(), names.one_shape(name))
        return self.read.scopes.bind(name, memory)

    def _stands_for(self, given: Expr, value: Expr) -> bool:
        """True where `given` equals `value`, or is a declared size, which becomes a name of it."""
        if any(given is size for size in self.draft.sizes):
            self.draft.sizes = [size for size in self.draft.sizes if size is not given]
            self.read.scopes.rebind(given, value)
            return True
        return provably_equal(given, value)

    def _shape(self, node: ast.expr) -> tuple[Expr, ...]:
        if isinstance(node, (ast.Tuple, ast.List)):
            return tuple(dim for n in node.elts for dim in self._dimensions(n))
        value = self.read.value(node)
        items = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(self.read.convert.integer(v, node) for v in items)

    def _dimensions(self, node: ast.expr) -> list[Expr]:
        """The dimensions that an item of a shape stands for; a new name in quotation marks becomes a size."""
        inner = self.read.annotation(node)
        if inner is node:
            return self.read.indices([node])
        if isinstance(inner, ast.Name) and self.read.scopes.find(inner.id) is None and inner.id not in self.read.scopes.captured:
            self.draft.declare_size(inner.id, "int32", node)
        return [self.read.index(inner)]
