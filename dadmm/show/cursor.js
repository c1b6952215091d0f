// The cursor: one iteration for the slider, the plots, the networks and the table.

const PAUSE = 180;  // milliseconds of a frame
const PLACE = `dadmm ${location.pathname}`;  // where a page that reloads keeps its place

class Cursor {
  constructor({ frames, scale, runs }) {
    this.networks = runs.map((own) => new Network(own, scale));
    const timed = page.figures.filter((figure) => figure.kind);
    this.figures = timed;
    this.frames = frames.length ? frames : Array.from(lines(timed[0])[0].x);
    this.own = new Map(timed.map((figure) => [figure.id, figure.data]));
    for (const name of ["play", "frame", "edge", "colour", "readout"]) this[name] = find(name);
    this.words = find("frame-words");
    this.node = 0;
    this.timer = null;
    this.frame.max = this.frames.length - 1;
    this.frame.value = this.frames.length - 1;
    if (this.networks.length) this.fill();
    this.listen();
    this.restore();
  }

  get t() {
    return this.frames[Number(this.frame.value)];
  }

  fill() {
    const keys = new Set(this.networks.flatMap((own) => own.keys));
    for (const key of keys) this.edge.add(new Option(key, key));
    const names = new Set(this.networks.flatMap((own) => [...own.nodes.keys()]));
    for (const name of [...names, "none"]) this.colour.add(new Option(name, name));
    this.edge.value = this.strongest();
  }

  // The edge of the first run that has the largest penalty of all.
  strongest() {
    const [own] = this.networks;
    if (!own.eta) return own.keys[0];
    const most = own.eta.reduce((a, b) => Math.max(a, b));
    return own.keys[own.eta.indexOf(most) % own.n];
  }

  listen() {
    this.frame.addEventListener("input", () => { this.stop(); this.show(); });
    this.play.addEventListener("click", () => (this.timer ? this.stop() : this.run()));
    if (this.networks.length) {
      this.edge.addEventListener("change", () => this.choose(this.edge.value));
      this.colour.addEventListener("change", () => this.show());
    }
    if (across) across.addEventListener("change", () => this.redraw());
    for (const own of this.networks) {
      own.svg.addEventListener("click", (event) => this.click(own, event));
      own.svg.addEventListener("pointermove", (event) => this.hover(own, event));
      own.svg.addEventListener("pointerleave", () => this.hover(own, null));
      own.svg.addEventListener("keydown", (event) => this.step(event));
    }
    addEventListener("pagehide", () => this.keep());
  }

  redraw() {
    this.figures.filter((figure) => figure.data.length).forEach(draw);
    this.show();
  }

  // Let a plot move the cursor; plotly has no events before it has drawn.
  attach(figure) {
    const plot = find(figure.id);
    if (plot.dataset.attached || !plot.on) return;
    plot.dataset.attached = "yes";
    const at = ({ points: [point] }) => Number(figure.data[point.curveNumber].x[point.pointNumber]);
    plot.on("plotly_hover", (event) => tell(figure, at(event)));
    plot.on("plotly_unhover", () => tell(figure, this.t));
    plot.on("plotly_click", (event) => this.move(at(event)));
    plot.on("plotly_afterplot", () => this.mark(figure));
  }

  // Draw the line of the cursor over a plot.
  mark(figure) {
    const plot = find(figure.id), axis = (plot._fullLayout || {}).xaxis;
    if (!axis) return;
    let line = plot.querySelector(".now");
    if (!line) {
      line = plot.appendChild(document.createElement("div"));
      line.className = "now";
    }
    const { yaxis } = plot._fullLayout, x = axis.d2p(place(figure, 0, this.t));
    line.hidden = !(x >= 0 && x <= axis._length);
    Object.assign(line.style, { left: `${axis._offset + x}px`, top: `${yaxis._offset}px`,
      height: `${yaxis._length}px` });
  }

  click(own, event) {
    const edge = event.target.closest("[data-edge]"), node = event.target.closest("[data-node]");
    if (node) { this.node = Number(node.dataset.node); this.show(); }
    if (edge) this.choose(own.keys[Number(edge.dataset.edge)]);
  }

  hover(own, event) {
    const tip = find("tip") || document.body.appendChild(Object.assign(
      document.createElement("div"), { id: "tip" }));
    const hit = event && event.target.closest("[data-edge], [data-node]");
    tip.hidden = !hit;
    if (!hit) return;
    const { edge, node, name } = hit.dataset, key = own.keys[Number(edge)];
    const known = edge ? own.edge(this.t, key, true) : own.node(this.t, Number(node));
    const words = [...known].map(([what, value]) => `${what} ${value}`);
    tip.textContent = [edge ? `edge ${key}` : `node ${name}`, ...words].join(" · ");
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4)}px`;
    tip.style.top = `${event.clientY + 16}px`;
  }

  step(event) {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const n = this.edge.options.length;
    this.edge.selectedIndex = (this.edge.selectedIndex + move + n) % n;
    this.choose(this.edge.value);
  }

  run() {
    const last = this.frames.length - 1;
    if (Number(this.frame.value) >= last) this.frame.value = 0;
    this.play.textContent = "Pause";
    this.play.setAttribute("aria-pressed", "true");
    this.show();
    this.timer = setInterval(() => {
      this.frame.value = Number(this.frame.value) + 1;
      this.show();
      if (Number(this.frame.value) >= last) this.stop();
    }, PAUSE);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
    this.play.setAttribute("aria-pressed", "false");
  }

  // Move to an iteration, or the last frame before it.
  move(t) {
    this.stop();
    this.frame.value = rowOf(this.frames, t);
    this.show();
  }

  show() {
    const { t } = this, last = this.frames[this.frames.length - 1];
    const words = `${t.toLocaleString("en")} of ${last.toLocaleString("en")}`;
    this.words.textContent = words;
    this.frame.setAttribute("aria-valuetext", `iteration ${words}`);
    const drawn = this.figures.filter((figure) => figure.data.length);
    for (const figure of drawn) { this.attach(figure); this.mark(figure); tell(figure, t); }
    if (!this.networks.length) return;
    const colour = this.colour.value;
    const every = this.networks.flatMap((own) => [...(own.nodes.get(colour) || [])]);
    const known = every.filter((value) => Number.isFinite(value) && value !== 0);
    const ends = known.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)],
      [Infinity, -Infinity]);
    for (const own of this.networks) own.show(t, colour, ends);
    this.list(t);
  }

  choose(key) {
    this.edge.value = key;
    const only = this.networks.length === 1;
    for (const own of this.networks) own.choose(key);
    for (const figure of this.figures) {
      const name = figure.id.replace("plot-", "");
      if (!["eta", "budget"].includes(name)) continue;
      const base = this.own.get(figure.id);
      const all = name === "eta" && only && this.networks[0].eta ? [this.networks[0].edges()] : [];
      figure.data = [...all, ...base, ...this.networks.flatMap((own) => own.curves(key, name, only))];
      if (figure.data.length) draw(figure);
    }
    this.show();
  }

  // List what is known of the chosen edge and node, a column for each run.
  list(t) {
    const key = this.edge.value, facts = new Map();
    this.networks.forEach((own, k) => {
      for (const [kind, found] of [[`edge ${key}: `, own.edge(t, key, this.networks.length === 1)],
        [`node ${this.node}: `, own.node(t, this.node)]]) {
        for (const [name, value] of found) {
          if (!facts.has(kind + name)) facts.set(kind + name, this.networks.map(() => "–"));
          facts.get(kind + name)[k] = value;
        }
      }
    });
    const names = this.networks.length > 1 ? this.networks.map((own) => own.name) : ["value"];
    const rows = [[`iteration ${t.toLocaleString("en")}`, ...names],
      ...[...facts].map(([name, values]) => [name, ...values])];
    const table = document.createElement("table");
    rows.forEach((row, k) => {
      const line = table.insertRow();
      row.forEach((word, m) => {
        const cell = document.createElement(k === 0 || m === 0 ? "th" : "td");
        cell.scope = k === 0 ? "col" : "row";
        cell.textContent = word;
        line.append(cell);
      });
    });
    this.readout.replaceChildren(table);
  }

  // Remember the place of a reader, for a page that loads itself again.
  keep() {
    const open = [...document.querySelectorAll("details")].map((own) => own.open);
    const atEnd = Number(this.frame.value) === this.frames.length - 1;
    const place = { y: scrollY, t: atEnd ? null : this.t, open, node: this.node,
      edge: this.edge && this.edge.value, across: across && across.value };
    if (page.every) sessionStorage.setItem(PLACE, JSON.stringify(place));
  }

  restore() {
    const place = JSON.parse((page.every && sessionStorage.getItem(PLACE)) || "{}");
    if (place.across) across.value = place.across;
    if (place.node) this.node = place.node;
    if (place.t) this.frame.value = rowOf(this.frames, place.t);
    const known = place.edge && [...this.edge.options].some((own) => own.value === place.edge);
    if (place.across) this.redraw();
    if (this.networks.length) this.choose(known ? place.edge : this.edge.value); else this.show();
    document.querySelectorAll("details").forEach((own, k) => {
      own.open = Boolean((place.open || [])[k]);
    });
    if (place.y) scrollTo({ top: place.y, behavior: "instant" });
  }
}

if (find("frame")) new Cursor(page.network);
if (page.every) setTimeout(() => location.reload(), 1000 * page.every);
