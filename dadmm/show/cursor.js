// The cursor: one iteration for the slider, the plots, the networks and the table.

const PAUSE = 180;  // milliseconds of a frame
const PLACE = `dadmm ${location.pathname}`;  // where a page that reloads keeps its place

class Cursor {
  constructor({ frames, scale, runs }) {
    this.networks = runs.map((own) => new Network(own, scale));
    this.figures = page.figures.filter((figure) => figure.kind);
    this.frames = frames.length ? frames : Array.from(lines(this.figures[0])[0].x);
    this.own = new Map(this.figures.map((figure) => [figure.id, figure.data]));
    for (const name of ["play", "frame", "edge", "colour", "readout"]) this[name] = find(name);
    this.node = 0;
    this.last = this.frames.length - 1;
    this.frame.max = this.last;
    this.frame.value = this.last;
    if (runs.length) this.fill();
    this.listen();
    this.restore();
  }

  get t() {
    return this.frames[Number(this.frame.value)];
  }

  // List edges and colours; the first edge is the one of the largest penalty of the first run.
  fill() {
    const [own] = this.networks, options = (names) => [...new Set(names)].map((name) => new Option(name));
    this.edge.append(...options(this.networks.flatMap((each) => each.keys)));
    this.colour.append(...options([...this.networks.flatMap((each) => [...each.nodes.keys()]), "none"]));
    const largest = own.eta ? own.eta.indexOf(own.eta.reduce((a, b) => Math.max(a, b))) : 0;
    this.edge.value = own.keys[largest % own.n];
  }

  listen() {
    this.frame.addEventListener("input", () => { this.stop(); this.show(); });
    this.play.addEventListener("click", () => { if (this.timer) this.stop(); else this.run(); this.show(); });
    if (across) across.addEventListener("change", () => { this.figures.forEach(draw); this.show(); });
    addEventListener("pagehide", () => this.keep());
    if (!this.networks.length) return;
    this.edge.addEventListener("change", () => this.choose(this.edge.value));
    this.colour.addEventListener("change", () => this.show());
    for (const own of this.networks) {
      own.svg.addEventListener("click", ({ target }) => {
        const { edge, node } = (target.closest("[data-edge], [data-node]") || {}).dataset || {};
        if (node) { this.node = Number(node); this.show(); }
        if (edge) this.choose(own.keys[Number(edge)]);
      });
      own.svg.addEventListener("pointermove", (event) => this.hover(own, event));
      own.svg.addEventListener("pointerleave", () => { find("tip").hidden = true; });
      own.svg.addEventListener("keydown", (event) => this.step(event));
    }
  }

  // Let a plot move the cursor; plotly has no events before it has drawn.
  attach(figure) {
    const plot = find(figure.id);
    if (plot.dataset.attached || !plot.on) return;
    plot.dataset.attached = "yes";
    const at = ({ points: [point] }) => Number(figure.data[point.curveNumber].x[point.pointNumber]);
    plot.on("plotly_hover", (event) => tell(figure, at(event)));
    plot.on("plotly_unhover", () => tell(figure, this.t));
    plot.on("plotly_click", (event) => {  // the last frame up to there
      this.stop();
      this.frame.value = rowOf(this.frames, at(event));
      this.show();
    });
    plot.on("plotly_afterplot", () => this.mark(figure));
  }

  // Draw the line of the cursor over a plot.
  mark(figure) {
    const plot = find(figure.id), { xaxis, yaxis } = plot._fullLayout || {};
    if (!xaxis) return;
    const line = plot.querySelector(".now") || plot.appendChild(document.createElement("div"));
    const x = xaxis.d2p(place(figure, 0, this.t));
    line.className = "now";
    line.hidden = !(x >= 0 && x <= xaxis._length);
    Object.assign(line.style, { left: `${xaxis._offset + x}px`, top: `${yaxis._offset}px`,
      height: `${yaxis._length}px` });
  }

  hover(own, { target, clientX, clientY }) {
    const tip = find("tip"), hit = target.closest("[data-edge], [data-node]");
    tip.hidden = !hit;
    if (!hit) return;
    const { edge, node, name } = hit.dataset, key = own.keys[Number(edge)];
    const known = edge ? own.edge(this.t, key) : own.node(this.t, Number(node));
    const words = [...known].map(([what, value]) => `${what} ${value}`);
    tip.textContent = [edge ? `edge ${key}` : `node ${name}`, ...words].join(" · ");
    tip.style.left = `${Math.min(clientX + 14, innerWidth - tip.offsetWidth - 4)}px`;
    tip.style.top = `${clientY + 16}px`;
  }

  step(event) {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const n = this.edge.options.length;
    this.choose(this.edge.options[(this.edge.selectedIndex + move + n) % n].value);
  }

  run() {
    if (Number(this.frame.value) >= this.last) this.frame.value = 0;
    this.timer = setInterval(() => {
      this.frame.value = Number(this.frame.value) + 1;
      if (Number(this.frame.value) >= this.last) this.stop();
      this.show();
    }, PAUSE);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
  }

  show() {
    const { t } = this, colour = this.colour && this.colour.value;
    const words = `${t.toLocaleString("en")} of ${this.frames[this.last].toLocaleString("en")}`;
    find("frame-words").textContent = words;
    this.frame.setAttribute("aria-valuetext", `iteration ${words}`);
    this.play.textContent = this.timer ? "Pause" : "Play";
    for (const figure of this.figures.filter((own) => own.data.length)) {
      this.attach(figure);
      this.mark(figure);
      tell(figure, t);
    }
    if (!this.networks.length) return;
    const ends = [Infinity, -Infinity];
    for (const value of this.networks.flatMap((own) => [...(own.nodes.get(colour) || [])])) {
      if (!Number.isFinite(value) || value === 0) continue;
      ends.splice(0, 2, Math.min(ends[0], value), Math.max(ends[1], value));
    }
    for (const own of this.networks) own.show(t, colour, ends);
    this.list(t);
  }

  choose(key) {
    this.edge.value = key;
    const [first] = this.networks, only = this.networks.length === 1;
    for (const own of this.networks) own.choose(key);
    for (const figure of this.figures) {
      const name = figure.id.replace("plot-", "");
      if (!["eta", "budget"].includes(name)) continue;
      const all = name === "eta" && only ? [first.edges()] : [];
      const curves = this.networks.flatMap((own) => own.curves(key, name, only));
      figure.data = [...all, ...this.own.get(figure.id), ...curves];
      draw(figure);
    }
    this.show();
  }

  // List what is known of the chosen edge and node, a column for each run.
  list(t) {
    const key = this.edge.value, facts = new Map();
    this.networks.forEach((own, k) => {
      for (const [kind, found] of [[`edge ${key}`, own.edge(t, key)], [`node ${this.node}`, own.node(t, this.node)]]) {
        for (const [name, value] of found) {
          const row = `${kind}: ${name}`;
          if (!facts.has(row)) facts.set(row, this.networks.map(() => "–"));
          facts.get(row)[k] = value;
        }
      }
    });
    const names = this.networks.length > 1 ? this.networks.map((own) => own.name) : ["value"];
    const table = document.createElement("table");
    for (const row of [[`iteration ${t.toLocaleString("en")}`, ...names],
      ...[...facts].map(([name, values]) => [name, ...values])]) {
      const line = table.insertRow();
      for (const word of row) {
        const scope = table.rows.length === 1 ? "col" : "row", isHead = scope === "col" || !line.cells.length;
        line.append(Object.assign(document.createElement(isHead ? "th" : "td"), { textContent: word, scope }));
      }
    }
    this.readout.replaceChildren(table);
  }

  // Remember the place of a reader, for a page that loads itself again.
  keep() {
    const open = [...document.querySelectorAll("details")].map((own) => own.open);
    const t = Number(this.frame.value) === this.last ? null : this.t;  // the end stays the end
    const place = { y: scrollY, t, open, node: this.node, edge: this.edge && this.edge.value,
      across: across && across.value };
    if (page.every) sessionStorage.setItem(PLACE, JSON.stringify(place));
  }

  restore() {
    const place = JSON.parse((page.every && sessionStorage.getItem(PLACE)) || "{}");
    this.node = place.node || 0;
    if (place.t) this.frame.value = rowOf(this.frames, place.t);
    if (place.across) {
      across.value = place.across;
      this.figures.forEach(draw);
    }
    const isKnown = this.networks.some((own) => own.index.has(place.edge));
    if (this.networks.length) this.choose(isKnown ? place.edge : this.edge.value); else this.show();
    document.querySelectorAll("details").forEach((own, k) => { own.open = Boolean((place.open || [])[k]); });
    if (place.y) scrollTo({ top: place.y, behavior: "instant" });
  }
}

if (find("frame")) new Cursor(page.network);
if (page.every) setTimeout(() => location.reload(), 1000 * page.every);
