// The networks of the runs: edges and nodes in an iteration, and curves of an edge.

const LEVELS = page.colours.light.levels.length, THIN = 1.2;  // as in svg.py

// Where a value lies between the ends of a scale, from 0 to 1.
function share(value, [low, high]) {
  if (!(high > low) || !Number.isFinite(value)) return 0.5;
  const at = low > 0 ? Math.log(value / low) / Math.log(high / low)
    : (value - low) / (high - low);
  return Math.min(Math.max(at, 0), 1);
}

// A run with the frames of its edges and nodes.
class Network {
  constructor(given, scale) {
    Object.assign(this, given, { scale });
    const names = ["frames", "pairs", "eta", "idle", "over", "forth", "back"];
    for (const name of [...names, "spent", "budget", "raised"]) {
      if (given[name]) this[name] = unpacked(given[name]);
    }
    this.nodes = new Map(Object.entries(given.nodes || {})
      .map(([name, values]) => [name, unpacked(values)]));
    this.n = this.pairs.length / 2;
    // directions of an edge that have budgets of their own
    this.ways = this.spent ? this.spent.length / (this.n * this.frames.length) : 1;
    this.svg = find(given.id);
    this.lines = [...this.svg.querySelectorAll(".edges line")];
    this.circles = [...this.svg.querySelectorAll("[data-node]")];
    this.halo = this.svg.querySelector(".halo");
    this.caption = this.svg.nextElementSibling;
    this.thick = Number(this.svg.dataset.thick);
    this.keys = this.lines.map((_, k) => `${this.pairs[2 * k]} – ${this.pairs[2 * k + 1]}`);
    this.index = new Map(this.keys.map((key, k) => [key, k]));
  }

  show(t, colour, ends) {
    const r = rowOf(this.frames, t), values = this.nodes.get(colour);
    if (this.eta) {
      this.lines.forEach((line, k) => {
        const at = share(this.eta[r * this.n + k], this.scale);
        const idle = this.idle && this.idle[r * this.n + k] === 3;
        const over = this.over && this.over[r * this.n + k];
        const state = idle ? " idle" : over ? " over" : "";
        line.setAttribute("class", `edge level${Math.round(at * (LEVELS - 1))}${state}`);
        line.setAttribute("stroke-width", (THIN + (this.thick - THIN) * at).toFixed(2));
      });
      const ended = t > this.frames[this.frames.length - 1] ? " (the last)" : "";
      this.caption.textContent = `iteration ${this.frames[r].toLocaleString("en")}${ended}`;
    }
    for (const node of this.circles) {
      const heat = values ? share(values[r * this.size(values) + Number(node.dataset.node)], ends) : 0;
      node.style.setProperty("--heat", `${(65 * heat).toFixed(0)}%`);
    }
  }

  // The number of nodes in an array of all frames.
  size(values) {
    return values.length / this.frames.length;
  }

  choose(key) {
    const k = this.index.get(key);
    this.halo.setAttribute("visibility", k === undefined ? "hidden" : "visible");
    if (k === undefined) return;
    for (const name of ["x1", "y1", "x2", "y2"]) {
      this.halo.setAttribute(name, this.lines[k].getAttribute(name));
    }
    this.halo.setAttribute("stroke-width", this.thick + 7);
  }

  // What is known of an edge in an iteration, by name; of one run by direction.
  edge(t, key, only) {
    const k = this.index.get(key), found = new Map();
    if (k === undefined || !this.eta) return found;
    const r = rowOf(this.frames, t), at = r * this.n + k, [i, j] = key.split(" – ");
    const { forth = this.eta, back = this.eta } = this;
    const ways = [`${i} to ${j}`, `${j} to ${i}`];
    found.set("η", digits(this.eta[at]));
    if (this.forth && only) {
      found.delete("η");
      [forth, back].forEach((own, m) => found.set(`η, ${ways[m]}`, digits(own[at])));
    }
    found.set("payloads", ["both", `only ${ways[1]}`, `only ${ways[0]}`, "none"][this.idle ? this.idle[at] : 0]);
    for (let m = 0; this.spent && m < this.ways; m++) {
      const e = (this.ways * r + m) * this.n + k;
      const raised = this.raised[e] ? `, raised ${this.raised[e]}×` : "";
      const words = `${digits(this.spent[e])} of ${digits(this.budget[e])}${raised}`;
      if (only && this.ways > 1) found.set(`spent, ${ways[m]}`, words);
      else found.set("spent", m ? `${found.get("spent")}; ${words}` : words);
    }
    return found;
  }

  // What is known of a node in an iteration, by name.
  node(t, i) {
    const r = rowOf(this.frames, t);
    return new Map([...this.nodes].filter(([, values]) => i < this.size(values))
      .map(([name, values]) => [name, digits(values[r * this.size(values) + i])]));
  }

  column(array, k, width) {
    return Array.from(this.frames, (_, r) => array[r * width + k]);
  }

  // One trace of all edges, with gaps between them.
  edges() {
    const x = [], y = [], customdata = [];
    this.keys.forEach((key, k) => {
      x.push(...this.frames, null);
      y.push(...this.column(this.eta, k, this.n), null);
      for (let r = 0; r <= this.frames.length; r++) customdata.push(key);
    });
    return { x, y, customdata, mode: "lines", hoverinfo: "none", opacity: 0.75,
      line: { color: "@faint", width: 0.7, shape: "hv" } };
  }

  // The curves of a chosen edge: penalties, or what it has spent of its budgets.
  curves(key, name, only) {
    const k = this.index.get(key);
    if (k === undefined || !this.eta || (name === "budget" && !this.spent)) return [];
    const colour = only ? "@vermillion" : this.look.colour;
    const [i, j] = key.split(" – "), words = [`${i} to ${j}`, `${j} to ${i}`];
    const trace = (array, e, width, label, line) => ({
      x: Array.from(this.frames), y: this.column(array, e, width), mode: "lines",
      name: only ? label : `${this.name}: ${label}`.replace(/[<>&]/g, " "), hoverinfo: "none",
      line: { color: colour, width: 4, dash: "solid", shape: "hv", ...line },
    });
    if (name === "eta") {
      const arrays = this.forth ? [this.forth, this.back] : [this.eta];
      return arrays.map((own, m) => trace(own, k, this.n, this.forth ? words[m] : `edge ${key}`,
        { dash: only && m ? "dot" : only ? "solid" : this.look.dash }));
    }
    const found = [];
    for (let m = 0; m < this.ways; m++) {
      const e = m * this.n + k, width = this.ways * this.n, way = this.ways > 1 ? `, ${words[m]}` : "";
      const thin = { width: 2 - 0.7 * m, color: only ? "@blue" : colour, dash: "dash" };
      found.push(trace(this.budget, e, width, `budget${way}`, thin),
        trace(this.spent, e, width, `spent${way}`, { width: 2 - 0.7 * m }));
    }
    return found;
  }
}
