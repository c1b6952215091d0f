// The slider and the play button of the network, and the choice of an edge.

const PAUSE = 180;  // milliseconds of a frame

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
    const directed = this.networks.some((own) => own.forth || own.ways === 2);
    const ways = directed ? [`, ${i} to ${j}`, `, ${j} to ${i}`] : [""];
    const head = ["edge", "iteration", ...ways.map((way) => `eta${way}`), "payloads"];
    if (this.networks.some((own) => own.spent)) {
      head.push(...ways.map((way) => `spent${way}`));
    }
    const only = this.networks.length === 1;
    const rows = this.networks.map((own) => {
      const first = only ? this.edge.value : `${this.edge.value}, ${own.name}`;
      return [first, ...own.cells(t, this.edge.value, directed)];
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
