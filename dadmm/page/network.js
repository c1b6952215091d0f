// The network over time: a slider, a play button, and the chosen edge.

const LEVELS = 9, THIN = 0.8, PAUSE = 180;  // milliseconds of a frame
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
    const names = ["frames", "pairs", "eta", "idle", "forth", "spent", "budget"];
    for (const name of names) if (given[name]) this[name] = unpacked(given[name]);
    this.n = this.pairs.length / 2;
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
    this.svg.querySelector(".edges").before(this.halo);
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

  // Whether the budgets of both directions are spent.
  isOver(r, k) {
    if (!this.spent) return false;
    const forth = 2 * this.n * r + k, back = forth + this.n;
    return this.spent[forth] >= this.budget[forth] && this.spent[back] >= this.budget[back];
  }

  show(t) {
    const r = this.row(t);
    this.lines.forEach((line, k) => {
      const at = this.place(this.eta[r * this.n + k]);
      const idle = this.idle && this.idle[r * this.n + k] === 3;
      const state = idle ? " idle" : this.isOver(r, k) ? " over" : "";
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
    this.halo.setAttribute("stroke-width", this.thick + 7);
  }

  // The cells of the table about an edge.
  cells(t, key) {
    const k = this.index.get(key);
    if (k === undefined) return ["no such edge, or it is not drawn"];
    const r = this.row(t), at = r * this.n + k;
    const found = [this.frames[r].toLocaleString("en")];
    const mean = this.eta[at], forth = this.forth ? this.forth[at] : mean;
    found.push(digits(forth), digits(2 * mean - forth));
    const silent = this.idle ? this.idle[at] : 0;
    found.push(["both", "only back", "only forth", "none"][silent]);
    if (this.spent) {
      for (const e of [2 * this.n * r + k, 2 * this.n * r + this.n + k]) {
        found.push(`${digits(this.spent[e])} of ${digits(this.budget[e])}`);
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

// The traces of the plot of penalties.
function penaltyTraces(networks, key) {
  const only = networks.length === 1, traces = [];
  for (const own of networks) {
    const x = [...own.frames], [low, middle, high] = own.spread();
    const style = { color: own.look.colour, dash: own.look.dash };
    const name = escaped(own.name);
    if (only) traces.push(allEdges(own));
    else {
      const unseen = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip",
        showlegend: false };
      const shade = { fill: "tonexty", fillcolor: `${own.look.colour}/0.12` };
      traces.push({ ...unseen, y: low }, { ...unseen, y: high, ...shade });
    }
    const label = only ? "median" : `${name}: median`;
    const line = only ? { color: "@text", width: 2 } : { ...style, width: 2 };
    const hovertemplate = "%{y:.4g}";
    traces.push({ x, y: middle, mode: "lines", name: label, line, hovertemplate });
    const k = own.index.get(key);
    if (k === undefined) continue;
    const thick = only ? { color: "@vermillion", width: 4 } : { ...style, width: 5 };
    const back = { ...thick, dash: "dot" }, mean = own.column(own.eta, k, own.n);
    const forth = own.forth ? own.column(own.forth, k, own.n) : mean;
    const [i, j] = key.split(" – "), prefix = only ? "" : `${name}: `;
    const ways = own.forth ? `${i} to ${j}` : `edge ${key}`;
    const more = { x, mode: "lines", hovertemplate };
    traces.push({ ...more, y: forth, name: prefix + ways, line: thick });
    if (own.forth) {
      const other = mean.map((value, r) => 2 * value - forth[r]);
      traces.push({ ...more, y: other, name: `${prefix}${j} to ${i}`, line: back });
    }
  }
  return traces;
}

// One trace of all edges, with gaps between them.
function allEdges(own) {
  const x = [], y = [], customdata = [];
  own.keys.forEach((key, k) => {
    for (let r = 0; r <= own.frames.length; r++) {
      const inside = r < own.frames.length;
      x.push(inside ? own.frames[r] : null);
      y.push(inside ? own.eta[r * own.n + k] : null);
      customdata.push(key);
    }
  });
  return {
    x, y, customdata, mode: "lines", name: "one edge", line: { color: "@faint", width: 0.7 },
    opacity: 0.75, hovertemplate: "edge %{customdata}: %{y:.4g}<extra></extra>",
  };
}

// The traces of the plot of budgets.
function budgetTraces(networks, key) {
  const traces = [], only = networks.length === 1;
  for (const own of networks) {
    const k = own.index.get(key);
    if (!own.spent || k === undefined) continue;
    const [i, j] = key.split(" – "), prefix = only ? "" : `${escaped(own.name)}: `;
    [[k, `${i} to ${j}`, 2.5], [own.n + k, `${j} to ${i}`, 1.4]].forEach(([e, way, width]) => {
      const of = { x: [...own.frames], mode: "lines", hovertemplate: "%{y:.4g}" };
      const colour = only ? "@blue" : own.look.colour;
      const y = own.column(own.spent, e, 2 * own.n);
      const most = own.column(own.budget, e, 2 * own.n);
      const step = { color: colour, width, dash: "dash", shape: "hv" };
      traces.push({ ...of, y: most, name: `${prefix}budget, ${way}`, line: step });
      const line = { color: only ? "@orange" : colour, width };
      traces.push({ ...of, y, name: `${prefix}spent, ${way}`, line });
    });
  }
  return traces;
}

// From 0 to 1.5 times the largest budget; spending goes on far beyond it.
function budgetRange(figure) {
  const most = figure.data.filter((own) => own.line.shape).flatMap((own) => own.y);
  return [0, 1.5 * Math.max(...most, 1e-9)];
}

function escaped(words) {
  return words.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

class Player {
  constructor(given) {
    this.frames = given.frames;
    this.networks = given.runs.map((own) => new Network(own, given.scale));
    for (const name of ["play", "frame", "edge", "readout"]) {
      this[name] = document.getElementById(name);
    }
    this.words = document.getElementById("frame-words");
    this.timer = null;
    this.frame.max = this.frames.length - 1;
    this.frame.value = this.frames.length - 1;
    this.fillSelect();
    this.choose(this.widest());
    this.listen();
  }

  fillSelect() {
    const keys = new Map();
    for (const own of this.networks) for (const key of own.keys) keys.set(key, true);
    for (const key of keys.keys()) this.edge.add(new Option(key, key));
  }

  // The edge of the first run whose penalty has the widest range.
  widest() {
    const [own] = this.networks;
    let best = 0, most = -1;
    for (let k = 0; k < own.n; k++) {
      const column = own.column(own.eta, k, own.n);
      const ratio = Math.max(...column) / Math.min(...column);
      if (ratio > most) [best, most] = [k, ratio];
    }
    return own.keys[best];
  }

  listen() {
    this.frame.addEventListener("input", () => { this.stop(); this.show(); });
    this.play.addEventListener("click", () => (this.timer ? this.stop() : this.run()));
    this.edge.addEventListener("change", () => this.choose(this.edge.value));
    for (const own of this.networks) {
      own.svg.addEventListener("click", (event) => {
        const hit = event.target.closest("[data-edge]");
        if (hit) this.choose(own.keys[Number(hit.dataset.edge)]);
      });
      own.svg.addEventListener("keydown", (event) => this.step(event));
    }
    const plot = document.getElementById("plot-eta");
    plot.on("plotly_click", (event) => {
      const key = event.points.map((point) => point.customdata).find(Boolean);
      if (key) this.choose(key);
    });
  }

  step(event) {
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const move = moves[event.key];
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
    this.readout.setAttribute("aria-live", "off");
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
    this.readout.removeAttribute("aria-live");
  }

  show() {
    const t = this.frames[Number(this.frame.value)];
    for (const own of this.networks) own.show(t);
    const last = this.frames[this.frames.length - 1];
    const words = `${t.toLocaleString("en")} of ${last.toLocaleString("en")}`;
    this.words.textContent = words;
    this.frame.setAttribute("aria-valuetext", `iteration ${words}`);
    this.tell(t);
  }

  choose(key) {
    this.edge.value = key;
    for (const own of this.networks) own.choose(key);
    this.drawCurves();
    this.show();
  }

  drawCurves() {
    const made = { "plot-eta": penaltyTraces, "plot-budget": budgetTraces };
    for (const figure of page.figures) {
      if (figure.id in made) {
        figure.data = made[figure.id](this.networks, this.edge.value);
        const only = this.networks.length === 1;
        figure.layout.hovermode = figure.id === "plot-eta" && only ? "closest" : "x unified";
        if (figure.id === "plot-budget") figure.layout.yaxis.range = budgetRange(figure);
        figure.layout.showlegend = true;
        figure.layout.legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0,
          traceorder: "normal" };
        figure.layout.height = 380;
        draw(figure);
      }
    }
  }

  tell(t) {
    const [i, j] = this.edge.value.split(" – ");
    const head = ["edge", "iteration", `eta, ${i} to ${j}`, `eta, ${j} to ${i}`, "payloads"];
    if (this.networks.some((own) => own.spent)) {
      head.push(`spent, ${i} to ${j}`, `spent, ${j} to ${i}`);
    }
    const only = this.networks.length === 1;
    const rows = this.networks.map((own) => {
      const first = only ? this.edge.value : `${this.edge.value}, ${own.name}`;
      return [first, ...own.cells(t, this.edge.value)];
    });
    const table = document.createElement("table");
    [head, ...rows].forEach((row, k) => {
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
}

if (page.network.runs && page.network.runs.length) new Player(page.network);
