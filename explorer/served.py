"""The explorer with a schedule that is edited: a server for this machine alone replays it at each change."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socket import INADDR_LOOPBACK
from threading import Lock
from typing import Any

from codegen.backend import backend
from codegen.target import Target
from search.drawing.html import resource
from tir.ir import PrimFunc

from .answers import MAX_CHARACTERS, AnswerError, Attempt, attempt
from .page import LIMIT_SECONDS, contents, written
from .stages import of_schedule
from .times import Timed, measured

ADDRESS = str(ip_address(INADDR_LOOPBACK))  # other machines cannot connect
MAX_BYTES = 8 * MAX_CHARACTERS  # of a request: a character is at most six bytes of JSON, and one that is too long is told so
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'self'"


@dataclass(frozen=True)
class Desk:
    """A function whose schedule is a text: calls, or a trace's JSON. `start` is the text to begin with; `allowed` are primitives
    that it may name, or all that are proved. `about` stands above the editor. `judged` gives the text of a verdict on an
    attempt, such as that of a puzzle."""

    title: str
    func: PrimFunc
    start: str = ""
    target: Target = field(default_factory=lambda: Target("llvm"))
    allowed: Sequence[str] = ()
    about: str = ""
    judged: Callable[[Attempt], str] | None = None
    measure: bool = False
    limit: float = LIMIT_SECONDS

    def page(self) -> str:
        """The page with its editor."""
        editor = resource("editor.html", __file__).format(text=escape(self.start), measure=" checked" * self.measure)
        editor = f"<pre>{escape(self.about)}</pre>{editor}" if self.about else editor
        return written(self.title, f"{self.target}; each change is replayed", self._shown(attempt(self.func, ""), False), editor)

    def replayed(self, text: str, measure: bool = False) -> dict[str, Any]:
        """The stages of a text for the page's script, up to the first refused step, with the `problem` of its `line`, if any."""
        try:
            tried = attempt(self.func, text, self.allowed)
        except AnswerError as error:
            return {"problem": str(error), "line": error.line}
        found = self._shown(tried, measure)
        if tried.error is not None:
            found |= {"problem": str(tried.error), "line": tried.line}
        if self.judged is not None:
            found["verdict"] = self.judged(tried)
        return found

    def _shown(self, tried: Attempt, measure: bool) -> dict[str, Any]:
        stages = of_schedule(tried.schedule)
        times: list[Timed | None] = [None] * len(stages)
        if measure and not backend(self.target).missing(self.target):
            times[-1:] = measured(stages[-1:], self.target, self.limit)
        return contents(stages, times)


class Server(ThreadingHTTPServer):
    """A server of a desk, for those who know its address: it has a token that nobody can guess."""

    daemon_threads = True

    def __init__(self, desk: Desk, port: int = 0):
        """A server at a port, or at one that is free. Raises OSError for a port that is in use."""
        self.desk, self.token, self.busy = desk, secrets.token_urlsafe(16), Lock()
        super().__init__((ADDRESS, port), _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self._known(""):
            self._send("text/html; charset=utf-8", self.server.desk.page())

    def do_POST(self) -> None:
        if not self._known("replay"):
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BYTES:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            asked = json.loads(self.rfile.read(int(length)))
            text, measure = asked["text"], asked.get("measure", False)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        if not isinstance(text, str) or not isinstance(measure, bool):
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        with self.server.busy:  # times are of one program at a time
            found = self.server.desk.replayed(text, measure)
        self._send("application/json", json.dumps(found))

    def _known(self, name: str) -> bool:
        """True for a request of this page by its token; others, as by names that another site points here, get an error."""
        host = f"{ADDRESS}:{self.server.server_port}"
        wanted = f"/{self.server.token}/{name}"
        known = self.headers.get("Host") == host and secrets.compare_digest(self.path.encode(), wanted.encode())
        if not known:
            self.send_error(HTTPStatus.FORBIDDEN)
        return known

    def _send(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(HTTPStatus.OK)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Content-Security-Policy": POLICY,
                   "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address has the token."""
