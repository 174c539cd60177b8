"""The page whose schedule is edited: its replays, its server, and the page itself in a browser."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer.answers import MAX_CHARACTERS
from explorer.served import ADDRESS, MAX_BYTES, Desk, Server, _Handler
from puzzles import PUZZLES
from puzzles.puzzle import judged
from tests.programs import product

from ..browser import CHROMIUM, QUIET, needs_browser

START = 's.split("i", [None, 4])\ns.vectorize("j")'


def desk(**more) -> Desk:
    return Desk("product", product(13, 16, 7), START, **more)


def test_a_text_is_replayed_step_by_step():
    found = desk().replayed('i_0, i_1 = s.split("i", [None, 4])\ns.reorder(i_0, "j", "k", i_1)')
    assert [s["title"] for s in found["stages"]] == [
        "as written", "s.split('i', [None, 4])", "s.reorder('i_0', 'j', 'k', 'i_1')"
    ]  # fmt: skip
    assert "problem" not in found and found["runs"][-1]["misses"] > 0 and found["stages"][-1]["measured"] == "not measured"


def test_a_refused_step_has_its_line_and_its_witness():
    found = desk().replayed('s.split("i", [None, 4])\n\ns.parallel("k")\ns.vectorize("j")')
    assert [s["title"] for s in found["stages"]] == ["as written", "s.split('i', [None, 4])"]
    assert found["line"] == 3 and found["problem"].startswith("parallel('k'): ") and "accumulates over it" in found["problem"]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("s.split(", 1, "line 1: not Python: '(' was never closed"),
        ('x = 1\nimport os', 2, "line 2: `import os` is not understood"),
        ('s.splitt("i", [None, 4])', 1, "line 1: no primitive is named 'splitt'; did you mean `split`?"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_schedule_changes_nothing(text, line, problem):
    found = desk().replayed(text)
    assert found.keys() == {"problem", "line"} and found["line"] == line and found["problem"].startswith(problem)


def test_only_the_last_step_is_measured():
    stages = desk().replayed(START, measure=True)["stages"]
    assert [s["measured"] != "not measured" for s in stages] == [False, False, True]


def test_a_puzzle_has_its_verdict():
    puzzle = next(iter(PUZZLES.values()))
    own = Desk(
        puzzle.title, puzzle.program(), puzzle.start, allowed=puzzle.allowed, judged=lambda tried: str(judged(puzzle, tried))
    )
    assert own.replayed(puzzle.start)["verdict"].startswith(f"{puzzle.name}: not solved")


# --- the server -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(desk()) as found:
        threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True).start()
        yield found
        found.shutdown()


def request(
    server: Server, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(ADDRESS, server.server_port, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


def test_the_page_and_its_replays(server):
    path = f"/{server.token}/"
    status, page, headers = request(server, "GET", path)
    assert status == 200 and b"<textarea id=text" in page and b"s.split(&quot;i&quot;, [None, 4])" in page
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Referrer-Policy"] == "no-referrer"
    status, found, _ = request(server, "POST", path + "replay", json.dumps({"text": START}).encode())
    assert status == 200 and len(json.loads(found)["stages"]) == 3


def test_requests_that_are_not_of_the_page(server):
    good, body = f"/{server.token}/", json.dumps({"text": START}).encode()
    assert server.server_address[0] == ADDRESS
    assert request(server, "GET", "/")[0] == 403
    assert request(server, "GET", f"/{'x' * len(server.token)}/")[0] == 403
    assert request(server, "POST", "/replay", body)[0] == 403
    assert request(server, "GET", good, Host=f"evil.example:{server.server_port}")[0] == 403
    for bad in (b"{", b"[]", b'{"text": 1}', b'{"text": "", "measure": 1}', b'"text"'):
        assert request(server, "POST", good + "replay", bad)[0] == 400, bad
    assert request(server, "POST", good + "replay", b"", **{"Content-Length": str(MAX_BYTES + 1)})[0] == 413
    status, found, _ = request(server, "POST", good + "replay", json.dumps({"text": "#" * (MAX_CHARACTERS + 1)}).encode())
    assert status == 200 and "at most 100000 characters" in json.loads(found)["problem"]


def test_the_command_prints_its_address_and_ends_by_a_signal():
    command = [sys.executable, "-m", "tir.explore", "gmm", "--shape", "1,13,7,16", "--serve", "--no-measure"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"open http://{ADDRESS}:"), process.stderr and process.stderr.read()
        process.terminate()
        assert process.wait(30) == 143


# --- the page in a browser ------------------------------------------------------------------------------------------------

SCRIPT = """
const frame = document.querySelector("iframe"), out = document.querySelector("pre");
const until = async test => { while (!test()) await new Promise(done => setTimeout(done, 20)); };
frame.onload = async () => {
  const page = frame.contentDocument, at = id => page.getElementById(id), found = {};
  const type = async value => {
    at("text").value = value; at("text").dispatchEvent(new Event("input"));
    await until(() => at("state").textContent == "…"); await until(() => at("state").textContent == "");
  };
  await until(() => page.querySelectorAll("#steps li").length == 3);
  found.start = [at("text").value, at("title").textContent, page.querySelectorAll("#nest .vector").length];
  at("keep").click();
  await type('s.parallel("k")');
  found.refused = [at("problem").textContent.split("\\n")[0], at("text").getAttribute("aria-invalid"),
    page.querySelectorAll("#steps li").length, at("text").style.backgroundImage.startsWith("linear-gradient")];
  await type('s.unroll("k")');
  found.mended = [at("problem").textContent, at("title").textContent, at("text").style.backgroundImage];
  at("undo").click(); await until(() => at("text").value == 's.parallel("k")'); await until(() => at("state").textContent == "");
  at("undo").click(); await until(() => page.querySelectorAll("#steps li").length == 3);
  found.undone = [at("text").value, at("kept").hidden, at("kept").querySelectorAll(".vector").length];
  found.fits = page.documentElement.scrollWidth <= frame.clientWidth;
  const ink = frame.contentWindow.getComputedStyle(at("text"));
  found.colours = [ink.color, ink.backgroundColor];
  out.textContent = JSON.stringify(found); out.id = "done";
};
"""


class _Harness(_Handler):
    """The page in a frame, beside a script that types as a user does."""

    width = 1200

    def do_GET(self) -> None:
        if self.path == "/harness":
            body = (
                f'<iframe src="/{self.server.token}/" width={self.width} height=900></iframe><pre></pre><script>{SCRIPT}</script>'
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body.encode())
        else:
            super().do_GET()


def in_browser(server: Server, folder: Path, width: int, *options: str) -> dict:
    server.RequestHandlerClass = type("Harness", (_Harness,), {"width": width})
    command = [CHROMIUM, *QUIET, *options, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=60000", "--dump-dom"]
    url = f"http://{ADDRESS}:{server.server_port}/harness"
    page = subprocess.run([*command, url], capture_output=True, text=True, timeout=240, check=True).stdout
    assert '<pre id="done">' in page, page[-2000:]
    return json.loads(page.split('<pre id="done">')[1].split("</pre>")[0].replace("&quot;", '"').replace("&gt;", ">"))


@needs_browser
@pytest.mark.parametrize(("width", "options"), [(1200, ()), (420, ("--blink-settings=preferredColorScheme=0",))])
def test_typing_refusals_undo_dark_and_small_screens(server, tmp_path, width, options):
    found = in_browser(server, tmp_path, width, *options)
    assert found["start"] == [START, "2. s.vectorize('j')", 1]
    problem, invalid, steps, marked = found["refused"]
    assert problem.startswith("parallel('k'): ") and invalid == "true" and steps == 1 and marked
    assert found["mended"] == ["", "1. s.unroll('k')", "none"]
    assert found["undone"] == [START, False, 1]
    assert found["fits"], "the page scrolls sideways"
    ink, paper = (sum(map(int, c.strip("rgba()").split(",")[:3])) for c in found["colours"])
    assert (ink > paper) == bool(options), found["colours"]
