// Draw the figures of the page with plotly, in the colours of the page.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const find = (name) => document.getElementById(name);
const dark = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;
const across = find("across");  // what the criteria are drawn over
const ARRAYS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, u1: Uint8Array };
const PRINTED = 330;  // width of a printed plot, two of which fit on a sheet
const CONFIG = {
  displaylogo: false,
  responsive: true,
  plotlyServerURL: "",  // nothing is sent anywhere
  showSendToCloud: false,
  modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d", "autoScale2d"],
};

// Return an array for the description of one; plotly reads matrices by itself.
function unpacked(value) {
  const { dtype, bdata, levels } = value;
  const bytes = Uint8Array.from(atob(bdata), (char) => char.charCodeAt(0));
  if (levels) return Float64Array.from(bytes, (place) => levels[place]);
  return new ARRAYS[dtype](bytes.buffer);
}

for (const figure of page.figures) {
  for (const trace of figure.data) {
    for (const name of ["x", "y"]) {
      if (trace.type === undefined && trace[name].bdata) trace[name] = unpacked(trace[name]);
    }
  }
}
page.costs = page.costs.map((own) => Object.fromEntries(
  Object.entries(own).map(([name, value]) => [name, unpacked(value)])));

// Return a copy in which "@name" and "@name/opacity" are colours.
function themed(value) {
  if (typeof value === "string" && value.startsWith("@")) {
    const [name, opacity] = value.slice(1).split("/");
    const found = page.colours[dark.matches ? "dark" : "light"][name];
    if (opacity === undefined) return found;
    const parts = [1, 3, 5].map((k) => parseInt(found.slice(k, k + 2), 16));
    return `rgba(${parts.join(",")},${opacity})`;
  }
  if (Array.isArray(value)) return value.map(themed);
  if (value !== null && typeof value === "object" && !ArrayBuffer.isView(value)) {
    const pairs = Object.entries(value).map(([key, inner]) => [key, themed(inner)]);
    return Object.fromEntries(pairs);
  }
  return value;
}

function axis(given) {
  const usual = {
    automargin: true, color: "@text", gridcolor: "@grid", linecolor: "@axis",
    zeroline: false, ticks: "outside", tickcolor: "@axis", nticks: 7,
  };
  return { ...usual, ...given };
}

// What a figure is drawn over: "", "log", "bytes" or "seconds".
function over(figure) {
  return figure.kind === "criteria" && across ? across.value : "";
}

function timeAxis(figure) {
  const spike = { showspikes: true, spikemode: "across", spikethickness: 1,
    spikedash: "dot", spikecolor: "@axis" };
  const found = { ...axis(figure.layout.xaxis), ...spike };
  if (over(figure) === "bytes") found.title = { text: "Bytes" };
  if (over(figure) === "seconds") found.title = { text: "Seconds" };
  if (over(figure) === "log") found.type = "log";
  if (found.type !== "log") return found;
  const ticks = [];
  for (let power = 0; power < 10; power++) {
    for (const step of [1, 2, 5]) ticks.push(step * 10 ** power);
  }
  return { ...found, tickvals: ticks, ticktext: ticks.map(String) };
}

function layout(figure) {
  const given = figure.layout, costs = ["bytes", "seconds"].includes(over(figure));
  const shapes = (given.shapes || []).filter((own) => !costs || own.xref === "paper");
  const annotations = costs ? [] : (given.annotations || []).map((own) => (
    { ...own, x: over(figure) === "log" ? Math.log10(own.x) : own.x }));
  return themed({
    autosize: true,
    height: 290,
    margin: { l: 58, r: 10, t: 26, b: 44 },  // buttons are above the data
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: "@text", family: "system-ui, sans-serif", size: 13 },
    hoverlabel: { bgcolor: "@paper", bordercolor: "@axis", font: { color: "@text" } },
    hovermode: figure.kind ? "x" : "closest",
    hoverdistance: -1,
    showlegend: false,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "@faint", activecolor: "@text" },
    ...given,
    shapes,
    annotations,
    xaxis: figure.kind ? timeAxis(figure) : axis(given.xaxis || {}),
    yaxis: axis(given.yaxis || {}),
  });
}

// Return the place of an iteration on the axis of a figure, for a run.
function place(figure, run, t) {
  const line = lines(figure).find((own) => own.meta && own.meta.run === run);
  const costs = (page.costs[run] || {})[over(figure)];
  return costs && line ? costs[rowOf(line.x, t)] : t;
}

function draw(figure) {
  const data = figure.data.map((trace) => {
    if (!["bytes", "seconds"].includes(over(figure))) return trace;
    return { ...trace, x: Array.from(trace.x, (t) => place(figure, trace.meta.run, t)) };
  });
  Plotly.react(figure.id, themed(data), layout(figure), CONFIG);
}

// The traces of a figure that have values to read.
function lines(figure) {
  return figure.data.filter((trace) => trace.name && trace.mode === "lines");
}

// The row of the last number up to t.
function rowOf(numbers, t) {
  let [low, high] = [0, numbers.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (numbers[middle] <= t) low = middle; else high = middle - 1;
  }
  return low;
}

function digits(value) {
  return Number.isFinite(value) ? Number(value.toPrecision(4)).toString() : "–";
}

// Write the values of a figure in an iteration above it, where they hide nothing.
function tell(figure, t) {
  const line = find(figure.id).parentElement.querySelector(".values");
  const all = lines(figure), found = all.length > 4 ? all.filter((own) => own.meta) : all;
  line.replaceChildren(`iteration ${t.toLocaleString("en")}: `, ...found.map((trace) => {
    const row = rowOf(trace.x, t), item = document.createElement("span");
    const [low, high] = [2, 1].map((k) => figure.data[figure.data.indexOf(trace) - k]);
    item.textContent = t < trace.x[0] ? "–" : digits(trace.y[row]);
    if (found.length > 1 && found.length < 4) item.prepend(`${trace.name} `);
    if (low && high && high.fill && found.length === 1) {
      item.textContent += ` (nodes ${digits(low.y[row])} to ${digits(high.y[row])})`;
    }
    item.title = item.ariaLabel = `${trace.name}: ${item.textContent}`;
    if (found.length > 1) item.style.borderColor = themed(trace.line.color);
    return item;
  }));
}

// Turn a camera about the vertical axis, or tilt it.
function turn(button) {
  const plot = find("plot-solid");
  const camera = (plot.layout.scene || {}).camera || {};
  const { x, y, z } = camera.eye || { x: 1.25, y: 1.25, z: 1.25 };
  const flat = Math.hypot(x, y), size = Math.hypot(flat, z), step = Math.PI / 12;
  const sides = { left: -step, right: step }, tilts = { up: step, down: -step };
  const around = Math.atan2(y, x) + (sides[button.dataset.turn] || 0);
  let tilt = Math.atan2(z, flat) + (tilts[button.dataset.turn] || 0);
  tilt = Math.max(-1.5, Math.min(1.5, tilt));
  Plotly.relayout(plot, { "scene.camera.eye": {
    x: size * Math.cos(tilt) * Math.cos(around),
    y: size * Math.cos(tilt) * Math.sin(around),
    z: size * Math.sin(tilt),
  } });
}

// Sort the rows of a table by a column, numbers as numbers.
function sort(head) {
  const body = head.closest("table").tBodies[0], k = head.cellIndex;
  const up = head.ariaSort !== "ascending";
  const key = (row) => {
    const words = row.cells[k].textContent, value = parseFloat(words.replace(/,/g, ""));
    return Number.isNaN(value) ? words : value;
  };
  const order = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b) : typeof a === "string" ? 1 : -1);
  const rows = [...body.rows].sort((a, b) => (up ? 1 : -1) * order(key(a), key(b)));
  for (const other of head.parentElement.cells) other.ariaSort = null;
  head.ariaSort = up ? "ascending" : "descending";
  body.append(...rows);
}

function start() {
  root.classList.add("scripted");
  const canvas = document.createElement("canvas");
  if (!canvas.getContext("webgl2") && !canvas.getContext("webgl")) {
    page.figures = page.figures.filter((figure) => figure.id !== "plot-solid");
    if (find("plot-solid")) find("plot-solid").textContent = "This browser has no WebGL.";
  }
  page.figures.filter((figure) => figure.data.length).forEach(draw);
  dark.addEventListener("change", () => page.figures.forEach(draw));
  document.querySelectorAll("button[data-turn]").forEach((button) => {
    button.addEventListener("click", () => turn(button));
  });
  document.querySelectorAll(".sortable th[scope=col]").forEach((head) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
  });
  const resize = (size) => page.figures.forEach(({ id }) => Plotly.relayout(id, size));
  addEventListener("beforeprint", () => resize({ width: PRINTED, autosize: false }));
  addEventListener("afterprint", () => resize({ width: null, autosize: true }));
}

start();
