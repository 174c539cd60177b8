"""The process that measures: `python -m benchmarks.worker REQUEST`, started by the command with its number of threads fixed.

REQUEST is JSON: {"module": ..., "rows": [...], "options": {...}, "until": ...}; the time that is left until then (seconds since
1970, null for as long as it takes) is shared evenly by the rows that are left. It answers with one JSON object a line: a `result`
for each result and a `done` for each row; what else is printed goes to standard error. A row that raises is a result with an
`error`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from dataclasses import replace
from importlib import import_module

from .options import Options
from .runner import THREAD_VARIABLES, pinned


def main(request: str) -> None:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a kernel or a library prints
    wanted = json.loads(request)
    options = Options(**wanted["options"])
    if set(fixed := pinned().values()) != {str(options.threads)} or len(fixed) < len(THREAD_VARIABLES):
        sys.exit(f"benchmarks.worker: started for {options.threads} threads, but {' '.join(THREAD_VARIABLES)} are not all that")
    module = import_module(wanted["module"])

    def send(**message: object) -> None:
        print(json.dumps(message, allow_nan=False), file=channel, flush=True)

    def within(rows: int) -> Options:
        left = None if wanted["until"] is None else max(0.0, wanted["until"] - time.time()) / 60 / rows
        return replace(options, minutes=left)

    if hasattr(module, "prepare"):  # what is done for all rows together
        module.prepare(wanted["rows"], within(1))
    for done, row in enumerate(wanted["rows"]):
        try:
            for result in module.measure(row, within(len(wanted["rows"]) - done)):
                send(result={"row": row, **result})
        except Exception as error:  # the outermost frame: a row that fails is reported, and the next one is measured
            traceback.print_exc()
            send(result={"row": row, "error": f"{type(error).__name__}: {error}".strip()})
        send(done=row)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
