// The networks of the runs: their edges in an iteration.

const LEVELS = 9, THIN = 1.2;  // as in graph_svg.py
const ARRAYS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, u1: Uint8Array };

function unpacked({ dtype, bdata, levels }) {
  const bytes = Uint8Array.from(atob(bdata), (char) => char.charCodeAt(0));
  if (levels) return Float64Array.from(bytes, (place) => levels[place]);
  return new ARRAYS[dtype](bytes.buffer);
}

// A run with the frames of its edges.
class Network {
  constructor(given, scale) {
    Object.assign(this, given);
    const names = ["frames", "pairs", "eta", "idle", "over", "forth", "back"];
    names.push("spent", "budget", "raised");
    for (const name of names) if (given[name]) this[name] = unpacked(given[name]);
    this.n = this.pairs.length / 2;
    // directions of an edge that have budgets of their own
    this.ways = this.spent ? this.spent.length / (this.n * this.frames.length) : 1;
    this.scale = scale;
    this.svg = document.getElementById(given.id);
    this.lines = [...this.svg.querySelectorAll(".edges line")];
    this.caption = this.svg.nextElementSibling;
    this.thick = Number(this.svg.dataset.thick);
    this.keys = [];
    for (let k = 0; k < this.n; k++) {
      this.keys.push(`${this.pairs[2 * k]} – ${this.pairs[2 * k + 1]}`);
    }
    this.index = new Map(this.keys.map((key, k) => [key, k]));
    this.halo = this.lines[0].cloneNode();
    this.halo.setAttribute("class", "halo");
    this.halo.setAttribute("visibility", "hidden");
    this.svg.querySelector(".edges").after(this.halo);
  }

  // The row of the last frame up to an iteration.
  row(t) {
    let r = this.frames.length - 1;
    while (r > 0 && this.frames[r] > t) r--;
    return r;
  }

  place(value) {
    const [low, high] = this.scale;
    if (!(high > low * (1 + 1e-9))) return 0.5;
    return Math.min(Math.max(Math.log(value / low) / Math.log(high / low), 0), 1);
  }

  show(t) {
    const r = this.row(t);
    this.lines.forEach((line, k) => {
      const at = this.place(this.eta[r * this.n + k]);
      const idle = this.idle && this.idle[r * this.n + k] === 3;
      const over = this.over && this.over[r * this.n + k];
      const state = idle ? " idle" : over ? " over" : "";
      line.setAttribute("class", `edge level${Math.round(at * (LEVELS - 1))}${state}`);
      line.setAttribute("stroke-width", (THIN + (this.thick - THIN) * at).toFixed(2));
    });
    const ended = t > this.frames[this.frames.length - 1] ? " (the last)" : "";
    this.caption.textContent = `iteration ${this.frames[r].toLocaleString("en")}${ended}`;
  }

  choose(key) {
    const k = this.index.get(key);
    this.halo.setAttribute("visibility", k === undefined ? "hidden" : "visible");
    if (k === undefined) return;
    for (const name of ["x1", "y1", "x2", "y2"]) {
      this.halo.setAttribute(name, this.lines[k].getAttribute(name));
    }
    this.halo.setAttribute("stroke-width", this.thick + 5);
  }

  // The cells of the table about an edge; of one direction, or of both.
  cells(t, key, directed) {
    const k = this.index.get(key);
    if (k === undefined) return ["no such edge, or it is not drawn"];
    const r = this.row(t), at = r * this.n + k;
    const found = [this.frames[r].toLocaleString("en")];
    const { forth = this.eta, back = this.eta } = this;
    found.push(digits(forth[at]));
    if (directed) found.push(digits(back[at]));
    const silent = this.idle ? this.idle[at] : 0;
    found.push(["both", "only back", "only forth", "none"][silent]);
    if (this.spent) {
      const first = this.ways * this.n * r + k, other = first + (this.ways - 1) * this.n;
      for (const e of directed ? [first, other] : [first]) {
        const raised = this.raised[e] ? `, raised ${this.raised[e]}×` : "";
        found.push(`${digits(this.spent[e])} of ${digits(this.budget[e])}${raised}`);
      }
    }
    return found;
  }

  column(array, k, width) {
    const found = [];
    for (let r = 0; r < this.frames.length; r++) found.push(array[r * width + k]);
    return found;
  }

  // The least, middle and largest penalty of each frame.
  spread() {
    const found = [[], [], []];
    for (let r = 0; r < this.frames.length; r++) {
      const sorted = this.eta.slice(r * this.n, (r + 1) * this.n).sort();
      [0, this.n >> 1, this.n - 1].forEach((k, m) => found[m].push(sorted[k]));
    }
    return found;
  }
}

function digits(value) {
  return Number(value.toPrecision(4)).toString();
}
