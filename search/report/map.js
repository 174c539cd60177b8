(() => {
  const islands = JSON.parse(document.getElementById("population").textContent);
  const [pick, frame, when, plane, play] = ["island", "frame", "when", "plane", "play"].map(id => document.getElementById(id));
  const add = (name, attributes, title) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    if (title) e.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "title")).textContent = title;
    plane.appendChild(e);
  };
  const x = v => 30 + 1000 * v, y = v => 400 - 370 * v;
  const draw = () => {
    const island = islands[pick.value], now = island.frames[frame.value];
    plane.replaceChildren();
    const shown = island.measured.filter(m => !now || m.batch < now.batch || frame.value == frame.max);
    for (const [n, p] of (now ? now.points : []).entries())
      add("circle", {cx: x(p[0]), cy: y(p[1]), r: 4, class: "row", "fill-opacity": 0.85 - 0.7 * n / now.points.length}, `rank ${n + 1} of those shown`);
    for (const m of shown) for (const p of m.parents) {
      const from = island.measured.find(o => o.trial == p);
      if (from) add("path", {d: `M${x(from.x)} ${y(from.y)}L${x(m.x)} ${y(m.y)}`, class: "line grey descent"});
    }
    for (const m of shown)
      add("circle", {cx: x(m.x), cy: y(m.y), r: m.best ? 9 : 4 + 4 * m.speed, class: m.best ? "orange" : m.speed ? "blue" : "red"}, m.about);
    when.textContent = now ? `batch ${now.batch}, generation ${now.generation}; ${shown.length} measured` : "no generation was bred";
  };
  const choose = () => { frame.max = Math.max(0, islands[pick.value].frames.length - 1); frame.value = 0; draw(); };
  islands.forEach((s, n) => pick.add(new Option(`${s.name} (${s.measured.length} measured)`, n)));
  let timer = 0;
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "play"; };
  play.onclick = () => {
    if (timer) return stop();
    if (+frame.value == +frame.max) frame.value = 0;
    play.textContent = "pause";
    timer = setInterval(() => { if (+frame.value == +frame.max) return stop(); frame.value = +frame.value + 1; draw(); }, 350);
  };
  pick.onchange = choose; frame.oninput = () => { stop(); draw(); };
  choose(); frame.value = frame.max; draw();
})();
