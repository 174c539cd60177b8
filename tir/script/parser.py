"""The parser of scripts: from a text or a decorated function to a function of the IR.

The program is never executed. Names from outside a decorated function stand for their values. Loops and blocks that share a name
get suffixes, since schedules refer to them by name. Forms that the IR does not have are normalised here: loops that do not start
at 0, views of buffers.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..ir import PrimFunc, with_deep_recursion
from . import ir as namespace_ir
from . import namespace
from .error import ScriptError
from .expressions import Expressions
from .functions import read_function
from .module import Module
from .source import Source, python_tree

R = TypeVar("R")

__all__ = ["ScriptError", "parse", "prim_func"]


def parse(source: str, filename: str = "<script>") -> PrimFunc | Module:
    """The function, or the module, that a text defines.

    The text holds one function under `@T.prim_func` or one class under `@I.ir_module`; several functions make a module called
    Module. Imports, and constants such as `N = 128` or `N, M = 7, 13`, may stand beside. Nothing is executed. Raises ScriptError,
    with the line, for a text that is no program of the dialect.
    """
    if not isinstance(source, str):
        raise TypeError(f"parse takes the text of a script, got {type(source).__name__}")
    return _not_too_deep(filename, lambda: _parsed(Source(filename, tuple(source.splitlines()))))


def _parsed(text: Source) -> PrimFunc | Module:
    captured: dict[str, Any] = {"T": namespace, "I": namespace_ir}
    outside = Expressions(text, captured, live=False)
    functions: list[PrimFunc] = []
    modules: list[Module] = []
    for s in _statements(text):
        match s:
            case ast.Import() | ast.ImportFrom():
                _import(s, captured)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                captured[name] = outside.value(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values) and all(
                isinstance(n, ast.Name) for n in names
            ):
                captured |= dict(zip(map(outside.identifier, names), outside.items(values), strict=True))
            case ast.ClassDef():
                _need_decorator(s, "I.ir_module", text)
                members = [
                    f
                    for item in s.body
                    for f in _definition(item, text, captured, "a module holds functions under @T.prim_func, and nothing else")
                ]
                modules.append(Module({f.name: f for f in members}, s.name))
            case _:
                functions += _definition(
                    s, text, captured, "only imports, constants, functions and modules stand at the top of a script"
                )
    match functions, modules:
        case [func], []:
            return func
        case [], [module]:
            return module
        case [], []:
            raise ScriptError("there is no function in this script", text.filename, hint="put @T.prim_func above the function")
        case _, []:
            return Module({f.name: f for f in functions})
    raise ScriptError("a script holds one module, or functions outside of one", text.filename)


def _definition(s: ast.stmt, text: Source, captured: Mapping[str, Any], fault: str) -> list[PrimFunc]:
    """The function that a statement defines; none where it says nothing, as a docstring and the attributes of a module."""
    match s:
        case ast.FunctionDef():
            _need_decorator(s, "T.prim_func", text)
            return [read_function(text, captured, False, s)]
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return []
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="module_attrs" | "module_global_infos"))):
            return []
    raise text.error(fault, s)


def _not_too_deep(filename: str, read: Callable[[], R]) -> R:
    """The result of `read`; ScriptError where it exceeds Python's recursion limit."""
    try:
        return with_deep_recursion(read)
    except RecursionError:
        hint = "name parts of it: x: T.float32 = ..."
        raise ScriptError("an expression is nested too deeply to be read", filename, hint=hint) from None


def prim_func(function: Callable | None = None, /, *, private: Any = False, check_well_formed: Any = True, **_: Any) -> Any:
    """Decorator: the function's source, parsed as a script; returns a PrimFunc.

    Names from around the function, such as `N = 128`, stand for their values. The options of TensorIR's decorator have no effect;
    `tir.verify` checks a function. Raises ScriptError, with the line, for a source that is no program of the dialect.
    """
    if function is None:
        return lambda f: _parse_function(f, sys._getframe(1).f_locals)
    return _parse_function(function, sys._getframe(1).f_locals)


def _parse_function(function: Callable, around: Mapping[str, Any]) -> PrimFunc:
    """The function in the source of a decorated Python function; `around` are the local names where it is defined."""
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function):
        raise ScriptError(f"@T.prim_func stands above a function, not {name}")
    filename = function.__code__.co_filename
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise ScriptError(
            f"the source of `{name}` cannot be read",
            filename,
            hint="put the function into a file, or give its text to tir.script.parse",
        ) from None
    source = Source(filename, tuple(line.rstrip("\n") for line in lines), first)
    captured = dict(function.__globals__) | dict(around)
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            captured[free] = cell.cell_contents
        except ValueError:  # not bound yet
            pass

    def read() -> PrimFunc:
        definition = _statements(source)[0]
        if not isinstance(definition, ast.FunctionDef):
            raise source.error("@T.prim_func stands above a `def`", definition)
        return read_function(source, captured, True, definition)

    return _not_too_deep(filename, read)


def _statements(source: Source) -> list[ast.stmt]:
    """The statements of a source, which may be indented as a whole, with its line numbers."""
    code = next((line for line in source.lines if line.strip() and not line.lstrip().startswith("#")), "")
    indented = code[:1].isspace()
    text = "\n".join(("if 1:", *source.lines) if indented else source.lines)
    before = source.first - (2 if indented else 1)  # from line numbers of `text` to those of the source
    try:
        tree = python_tree(text)
    except SyntaxError as e:
        line, start = (e.lineno or 1) + before, max(0, (e.offset or 1) - 1)
        end = (e.end_offset or 0) - 1 if e.end_lineno == e.lineno else start + 1
        known = 0 <= line - source.first < len(source.lines)
        shown = source.lines[line - source.first] if known else (e.text or "").rstrip("\n")
        raise ScriptError(f"not Python: {e.msg}", source.filename, line, start, end, shown) from None
    if before:
        ast.increment_lineno(tree, before)
    return tree.body[0].body if indented else tree.body  # type: ignore[attr-defined]


def _import(s: ast.Import | ast.ImportFrom, captured: dict[str, Any]) -> None:
    """Bind the names of the namespaces; other imports are ignored, since nothing is executed."""
    if isinstance(s, ast.ImportFrom) and s.module and s.module.split(".")[-1] == "script":
        for alias in s.names:
            space = {"tir": namespace, "ir": namespace_ir}.get(alias.name)
            if space is not None:
                captured[alias.asname or alias.name] = space


def _need_decorator(s: ast.FunctionDef | ast.ClassDef, name: str, text: Source) -> None:
    """Refuse any decorators but `T.prim_func` of a function, or `I.ir_module` of a class."""
    names = [ast.unparse(d.func if isinstance(d, ast.Call) else d).split(".")[-1] for d in s.decorator_list]
    if names != [name.split(".")[-1]]:
        what = "function" if isinstance(s, ast.FunctionDef) else "class"
        relax = any(ast.unparse(d).startswith(("R.", "relax.")) for d in s.decorator_list)
        hint = "functions of relax are not read; take them out, the others stand for themselves" if relax else None
        raise text.error(f"@{name} belongs above the {what} `{s.name}`, and nothing else", s, hint)
