// The networks of the runs: edges and nodes in an iteration, and curves of an edge.

const THIN = 1.2;  // as in network.py

// Where a value lies between the ends of a scale, from 0 to 1.
function share(value, [low, high]) {
  if (!(high > low) || !Number.isFinite(value)) return 0.5;
  const at = low > 0 ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.min(Math.max(at, 0), 1);
}

// The two directions of an edge.
function directions(key) {
  const [i, j] = key.split(" – ");
  return [`${i} to ${j}`, `${j} to ${i}`];
}

// A run with the frames of its edges and nodes.
class Network {
  constructor(given, scale) {
    Object.assign(this, given, { scale, nodes: new Map(Object.entries(given.nodes)) });
    this.n = this.pairs.length / 2;
    this.svg = find(given.id);
    this.lines = [...this.svg.querySelectorAll(".edges line")];
    this.halo = this.svg.querySelector(".halo");
    this.thick = Number(this.svg.dataset.thick);
    this.keys = this.lines.map((_, k) => `${this.pairs[2 * k]} – ${this.pairs[2 * k + 1]}`);
    this.index = new Map(this.keys.map((key, k) => [key, k]));
  }

  // The values of both directions of an edge in a frame.
  both(name, r, k) {
    return [this[name][2 * r * this.n + k], this[name][(2 * r + 1) * this.n + k]];
  }

  mean(r, k) {
    const [forth, back] = this.both("eta", r, k);
    return (forth + back) / 2;
  }

  // The value of a node in a frame; undefined if there is none.
  value(values, r, i) {
    const size = values.length / this.frames.length;
    return i < size ? values[r * size + i] : undefined;
  }

  show(t, colour, ends) {
    const r = rowOf(this.frames, t), values = this.nodes.get(colour);
    if (this.eta) {
      this.lines.forEach((line, k) => {
        const at = share(this.mean(r, k), this.scale), all = (name) => this.both(name, r, k).every(Boolean);
        const state = all("silent") ? " idle" : this.used_up && all("used_up") ? " over" : "";
        line.setAttribute("class", `edge level${Math.round(at * (LEVELS - 1))}${state}`);
        line.setAttribute("stroke-width", (THIN + (this.thick - THIN) * at).toFixed(2));
      });
      const ended = t > this.frames[this.frames.length - 1] ? " (the last)" : "";
      this.svg.nextElementSibling.textContent = `iteration ${this.frames[r].toLocaleString("en")}${ended}`;
    }
    for (const node of this.svg.querySelectorAll("[data-node]")) {
      const heat = values ? share(this.value(values, r, Number(node.dataset.node)), ends) : 0;
      node.style.setProperty("--heat", `${(65 * heat).toFixed(0)}%`);
    }
  }

  choose(key) {
    const line = this.lines[this.index.get(key)];
    this.halo.setAttribute("visibility", line ? "visible" : "hidden");
    if (!line) return;
    for (const name of ["x1", "y1", "x2", "y2"]) this.halo.setAttribute(name, line.getAttribute(name));
    this.halo.setAttribute("stroke-width", this.thick + 7);
  }

  // What is known of an edge in an iteration, by name; by direction where they differ.
  edge(t, key) {
    const k = this.index.get(key), found = new Map(), r = rowOf(this.frames, t);
    if (k === undefined || !this.eta) return found;
    const add = (name, [forth, back]) => {
      if (forth === back) { found.set(name, forth); return; }
      directions(key).forEach((way, m) => found.set(`${name}, ${way}`, [forth, back][m]));
    };
    add("η", this.both("eta", r, k).map(digits));
    add("payload", this.both("silent", r, k).map((own) => (own ? "none" : "sent")));
    if (!this.spent) return found;
    const [budget, raised] = ["budget", "raised"].map((name) => this.both(name, r, k));
    add("spent", this.both("spent", r, k).map((own, m) => (
      `${digits(own)} of ${digits(budget[m])}${raised[m] ? `, raised ${raised[m]}×` : ""}`)));
    return found;
  }

  // What is known of a node in an iteration, by name.
  node(t, i) {
    const r = rowOf(this.frames, t);
    return new Map([...this.nodes].map(([name, values]) => [name, digits(this.value(values, r, i))]));
  }

  // One trace of all edges, with gaps between them.
  edges() {
    const x = [], y = [];
    this.keys.forEach((_, k) => {
      x.push(...this.frames, null);
      y.push(...Array.from(this.frames, (__, r) => this.mean(r, k)), null);
    });
    return { x, y, mode: "lines", hoverinfo: "none", opacity: 0.75,
      line: { color: "@faint", width: 0.7, shape: "hv" } };
  }

  // The curves of a chosen edge: its penalties, or its budgets and what it has spent.
  curves(key, name, only) {
    const k = this.index.get(key), found = [];
    if (k === undefined || !this[name]) return found;
    const add = (what, label, look) => {
      const ways = [0, 1].map((m) => Array.from(this.frames, (_, r) => this.both(what, r, k)[m]));
      const differ = String(ways[0]) !== String(ways[1]);
      ways.slice(differ ? 0 : 1).forEach((y, m) => {
        const words = label + (differ ? `, ${directions(key)[m]}` : "");
        const line = { color: only ? "@vermillion" : `@${this.look.colour}`, shape: "hv", ...look };
        found.push({ x: Array.from(this.frames), y, mode: "lines", hoverinfo: "none",
          name: only ? words : `${this.name}: ${words}`.replace(/[<>&]/g, " "),
          line: m ? { ...line, dash: "dot" } : line });
      });
    };
    if (name === "eta") add("eta", `edge ${key}`, { width: 4, dash: only ? "solid" : this.look.dash });
    if (name === "budget") {
      add("budget", "budget", { width: 2, color: "@blue", dash: "dash" });
      add("spent", "spent", { width: 2 });
    }
    return found;
  }
}
