"""A named collection of functions, as `@I.ir_module` makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..ir import PrimFunc, annotation, need_func


class Module(Mapping[str, PrimFunc]):
    """Functions by name: `module["main"]`, or `module.main` where the name is free. Functions are printed with these names."""

    def __init__(self, functions: Mapping[str, PrimFunc], name: str = "Module"):
        self.name = name
        self._functions = {key: need_func(func, f"Module, as {key!r},") for key, func in functions.items()}

    @staticmethod
    def from_expr(func: PrimFunc) -> Module:
        """The module of one function, named by its attribute `global_symbol`, else by its own name."""
        return Module({str(annotation(need_func(func, "Module.from_expr").attrs, "global_symbol", func.name)): func})

    def __getitem__(self, name: str) -> PrimFunc:
        if name not in self._functions:
            raise KeyError(f"module {self.name} has no function {name!r}; it has {', '.join(self._functions) or 'none'}")
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __getattr__(self, name: str) -> PrimFunc:
        functions = self.__dict__.get("_functions", {})
        if name in functions:
            return functions[name]
        raise AttributeError(
            f"module {self.__dict__.get('name')} has no function {name!r}; it has {', '.join(functions) or 'none'}"
        )

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._functions})

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Module) and self.name == other.name and self._functions == other._functions

    def __hash__(self) -> int:
        return hash((self.name, tuple(self._functions)))

    def __repr__(self) -> str:
        return f"Module({self.name}: {', '.join(self._functions)})"

    def script(self) -> str:
        """The module in the script dialect, as Python source."""
        from .printer import module_text

        return module_text(self.name, self._functions)

    def show(self) -> None:
        """Print the script, coloured in a terminal."""
        from .printer import show_text

        show_text(self.script())
