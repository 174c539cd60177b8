"""The one error of the script dialect: a reason, its place in the source, and a hint."""

from __future__ import annotations

from .diagnostic import carets, source_line


class ScriptError(SyntaxError):
    """Error of a script that is not a program of the dialect.

    It is a SyntaxError, so that Python's own traceback shows the line. `str` gives place, reason, the source line with carets,
    and hint. `lineno` and `offset` count from 1; `lineno` is None without a source.
    """

    def __init__(
        self,
        reason: str,
        filename: str = "<script>",
        line: int | None = None,
        start: int = 0,
        end: int = 0,
        text: str = "",
        hint: str | None = None,
    ):
        super().__init__(reason)
        self.msg, self.filename, self.lineno, self.text = reason, filename, line, text
        self.offset, self.end_offset, self.end_lineno = start + 1, end + 1, line
        self.reason, self.hint = reason, hint
        self._arguments = (reason, filename, line, start, end, text, hint)
        if hint:
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        reason, filename, line, start, end, text, hint = self._arguments
        if line is None:
            lines = [f"{filename}: {reason}"]
        else:
            lines = [f"{filename}:{line}:{start + 1}: {reason}", source_line(line, text), carets(start, end)]
        if hint:
            lines.append(f"  hint: {hint}")
        return "\n".join(lines)

    def __reduce__(self):
        return ScriptError, self._arguments
