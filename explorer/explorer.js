(() => {
  const at = id => document.getElementById(id);
  let {stages, runs} = JSON.parse(at("stages").textContent);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  let step = 0, timer = 0, canvases = [];

  let items = [];
  const list = () => {
    at("steps").replaceChildren();
    items = stages.map((s, n) => {
      const button = document.createElement("button");
      button.append(s.title);
      const small = button.appendChild(document.createElement("small"));
      small.textContent = s.time;
      const bar = button.appendChild(document.createElement("em"));
      bar.style.width = 100 * s.bar + "%";
      button.onclick = () => go(n);
      at("steps").appendChild(document.createElement("li")).appendChild(button);
      return button;
    });
  };

  const stop = () => { clearInterval(timer); timer = 0; at("play").textContent = "play"; };

  // Each buffer is drawn in rows of its last dimension; short ones are put side by side, long ones are broken.
  const width = shape => {
    let columns = shape.at(-1) ?? 1;
    for (const n of shape.slice(1, -1).reverse()) { if (columns >= 8 || columns * n > 64) break; columns *= n; }
    return Math.min(columns, 64);
  };
  const lay = run => {
    at("memory").replaceChildren();
    canvases = run.buffers.map(b => {
      const size = b.drawn.reduce((a, c) => a * c, 1), columns = width(b.drawn);
      const rows = Math.min(Math.ceil(size / columns), 96), cell = Math.max(3, Math.min(14, Math.floor(360 / columns), Math.floor(420 / rows)));
      const figure = document.createElement("figure"), caption = figure.appendChild(document.createElement("figcaption"));
      caption.textContent = `${b.name}[${b.shape.join(", ")}]${`${b.drawn}` == `${b.shape}` ? "" : ", what is touched"}`;
      const canvas = figure.appendChild(document.createElement("canvas"));
      canvas.width = columns * cell + 1; canvas.height = rows * cell + 1;
      at("memory").appendChild(figure);
      return {canvas, columns, rows, cell};
    });
  };

  const draw = () => {
    const run = runs[stages[step].run];
    if (!run) return;
    const now = +at("time").value, paint = {hit: colour("green"), miss: colour("red"), rest: colour("rule"), ink: colour("ink"), used: colour("blue")};
    const pens = canvases.map(c => {
      const pen = c.canvas.getContext("2d");
      pen.clearRect(0, 0, c.canvas.width, c.canvas.height);
      pen.fillStyle = paint.rest;
      for (let y = 0; y < c.rows; y++) for (let x = 0; x < c.columns; x++) pen.fillRect(x * c.cell + 1, y * c.cell + 1, c.cell - 1, c.cell - 1);
      return pen;
    });
    const fill = (buffer, place, style, alpha) => {
      const c = canvases[buffer], x = place % c.columns, y = Math.floor(place / c.columns);
      if (y >= c.rows) return;
      pens[buffer].globalAlpha = alpha; pens[buffer].fillStyle = style;
      pens[buffer].fillRect(x * c.cell + 1, y * c.cell + 1, c.cell - 1, c.cell - 1);
      pens[buffer].globalAlpha = 1;
    };
    const each = (frame, use) => frame.forEach(([values, lanes, list]) => { for (let n = 0; n < list.length; n += 3) use(list[n], list[n + 1], list[n + 2]); });
    let hits = 0, misses = 0;
    run.frames.slice(0, now + 1).forEach((frame, n) => each(frame, (b, place, how) => {
      how & 1 ? misses++ : hits++;
      if (n < now) fill(b, place, paint.used, Math.max(0.12, 0.5 - (now - n) / 60));
    }));
    const frame = run.frames[now] ?? [];
    each(frame, (b, place, how) => {
      fill(b, place, how & 1 ? paint.miss : paint.hit, 1);
      const c = canvases[b], x = place % c.columns, y = Math.floor(place / c.columns);
      if (how & 2 && y < c.rows) { pens[b].strokeStyle = paint.ink; pens[b].lineWidth = 2; pens[b].strokeRect(x * c.cell + 1, y * c.cell + 1, c.cell - 1, c.cell - 1); }
    });
    const lanes = frame.map(([values, lanes]) => (lanes > 1 ? `${lanes} lanes, ` : "") + Object.entries(values).map(([k, v]) => `${k}=${v}`).join(" "));
    at("now").textContent = `${now + 1} of ${run.frames.length}${run.steps > run.frames.length ? ` (${run.steps} in all)` : ""}: ${lanes.join(" | ")}`;
    at("counts").textContent = `so far ${hits} hits, ${misses} misses; in all ${run.hits} hits, ${run.misses} misses (${(100 * run.misses / Math.max(1, run.hits + run.misses)).toFixed(1)} %), ${run.steps} steps of time`;
    for (const b of at("nest").querySelectorAll("b[data-loop]")) b.classList.toggle("running", frame.some(([values]) => b.dataset.loop in values));
  };

  const go = n => {
    stop();
    step = Math.max(0, Math.min(stages.length - 1, n));
    const s = stages[step], run = runs[s.run];
    items.forEach((b, k) => k == step ? b.setAttribute("aria-current", "step") : b.removeAttribute("aria-current"));
    items[step].scrollIntoView({block: "nearest"});
    at("title").textContent = `${step}. ${s.title}`;
    at("measured").textContent = s.measured;
    at("about").hidden = !s.about;
    at("about").querySelector("pre").textContent = s.about;
    at("nest").innerHTML = s.nest; at("before").innerHTML = s.before; at("after").innerHTML = s.after;
    at("which").textContent = run ? s.which : "It cannot be run without real data.";
    at("memory").replaceChildren(); at("now").textContent = at("counts").textContent = "";
    if (run) { lay(run); at("time").max = Math.max(0, run.frames.length - 1); at("time").value = 0; draw(); }
    history.replaceState(null, "", "#" + step);
  };

  const play = () => {
    if (timer) return stop();
    const time = at("time");
    if (time.value == time.max) time.value = 0;
    at("play").textContent = "pause";
    timer = setInterval(() => { if (time.value == time.max) return stop(); time.value = +time.value + 1; draw(); }, 80);
  };

  at("back").onclick = () => go(step - 1); at("on").onclick = () => go(step + 1);
  at("play").onclick = play; at("time").oninput = () => { stop(); draw(); };
  document.addEventListener("keydown", e => {
    if (e.target.matches("input, select, textarea") || e.ctrlKey || e.metaKey || e.altKey) return;
    const move = {ArrowRight: step + 1, ArrowDown: step + 1, ArrowLeft: step - 1, ArrowUp: step - 1, Home: 0, End: stages.length - 1}[e.key];
    if (move !== undefined) { go(move); e.preventDefault(); }
    else if (e.key == " " && !e.target.matches("button, summary")) { play(); e.preventDefault(); }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  list();
  go(parseInt(location.hash.slice(1)) || 0);

  // --- a schedule that is edited: each change is replayed by the server, and shown at its last step ---
  if (!at("editor")) return;
  const text = at("text"), start = text.value, past = [];
  let asked = 0, wait = 0, shown = text.value;
  const mark = n => {
    const height = parseFloat(getComputedStyle(text).lineHeight), top = parseFloat(getComputedStyle(text).paddingTop) + (n - 1) * height;
    const edges = [`transparent ${top}px`, `${colour("wrong")} ${top}px`, `${colour("wrong")} ${top + height}px`, `transparent ${top + height}px`];
    text.style.backgroundImage = n ? `linear-gradient(${edges.join(", ")})` : "none";
    text.setAttribute("aria-invalid", n ? "true" : "false");
  };
  const replay = async () => {
    const mine = ++asked, sent = text.value;
    at("state").textContent = "…";
    let found;
    try {
      const answer = await fetch("replay", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({text: sent, measure: at("measure").checked})});
      found = answer.ok ? await answer.json() : {problem: `the server says ${answer.status}`};
    } catch (error) { found = {problem: "the server does not answer; start python -m tir.explore again"}; }
    if (mine != asked) return;  // a later change is on its way
    at("state").textContent = "";
    at("problem").textContent = found.problem ?? "";
    at("verdict").textContent = found.verdict ?? "";
    mark(found.line);
    if (found.stages) { ({stages, runs} = found); list(); go(stages.length - 1); }
    if (sent != shown) { past.push(shown); shown = sent; }
    at("undo").disabled = !past.length;
  };
  const put = value => { text.value = value; clearTimeout(wait); return replay(); };
  text.oninput = () => { clearTimeout(wait); wait = setTimeout(replay, 200); };
  at("measure").onchange = replay;
  at("again").onclick = () => put(start);
  at("undo").onclick = () => { if (past.length) { shown = past.pop(); put(shown); } };
  at("copy").onclick = () => navigator.clipboard.writeText(text.value);
  at("keep").onclick = () => {
    const side = at("kept"), s = stages[step], run = runs[s.run];
    side.hidden = false;
    side.querySelector("pre").textContent = shown;
    side.querySelector("p").textContent = [s.measured, run ? `${run.misses} misses, ${run.hits} hits, ${run.steps} steps of time` : ""].join("; ");
    side.querySelector("div").innerHTML = s.nest;
  };
  replay();
})();
