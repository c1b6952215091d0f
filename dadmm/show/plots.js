// Draw the figures of the page with plotly, in the colours of the page.
"use strict";

const find = (name) => document.getElementById(name);
const root = document.documentElement;
const across = find("across");  // what the criteria are drawn over
const ARRAYS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, u1: Uint8Array };
const LEVELS = 9;  // colours of penalties, as in style.py
const PRINTED = 330;  // width of a printed plot, two of which fit on a sheet
const CONFIG = {
  displaylogo: false,
  responsive: true,
  plotlyServerURL: "",  // nothing is sent anywhere
  modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d", "autoScale2d"],
};

// The data of the page, with arrays for their descriptions; plotly reads matrices by itself.
const page = JSON.parse(find("data").textContent, (_, value) => {
  if (!value || !value.bdata || value.shape) return value;
  const bytes = Uint8Array.from(atob(value.bdata), (char) => char.charCodeAt(0));
  return new ARRAYS[value.dtype](bytes.buffer);
});

// Return a copy in which "@name", or "@name/opacity" with two hexadecimal digits, are colours.
function themed(value) {
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  if (value === "@scale") {
    return Array.from({ length: LEVELS }, (_, k) => [k / (LEVELS - 1), colour(`level${k}`)]);
  }
  if (typeof value === "string" && value.startsWith("@")) {
    const [name, opacity] = value.slice(1).split("/");
    return colour(name) + (opacity || "");
  }
  if (Array.isArray(value)) return value.map(themed);
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, themed(inner)]));
}

// What a figure is drawn over: "", "log", "bytes" or "seconds".
function over(figure) {
  return figure.kind === "criteria" && across ? across.value : "";
}

function axis(given) {
  return {
    automargin: true, color: "@text", gridcolor: "@grid", linecolor: "@axis",
    zeroline: false, ticks: "outside", tickcolor: "@axis", nticks: 7, ...given,
  };
}

function timeAxis(figure) {
  const found = { ...axis(figure.layout.xaxis), showspikes: true, spikemode: "across",
    spikethickness: 1, spikedash: "dot", spikecolor: "@axis" };
  const title = { bytes: "Bytes", seconds: "Seconds" }[over(figure)];
  if (title) found.title = { text: title };
  if (over(figure) === "log") found.type = "log";
  if (found.type !== "log") return found;
  const ticks = Array.from({ length: 30 }, (_, k) => [1, 2, 5][k % 3] * 10 ** Math.floor(k / 3));
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
    xaxis: figure.kind ? timeAxis(figure) : axis(given.xaxis),
    yaxis: axis(given.yaxis),
  });
}

// Return the place of an iteration on the axis of a figure, for a run.
function place(figure, run, t) {
  const line = lines(figure).find((own) => own.meta && own.meta.run === run);
  const costs = (page.costs[run] || {})[over(figure)];
  return costs && line ? costs[rowOf(line.x, t)] : t;
}

function draw(figure) {
  if (!figure.data.length) return;
  const data = figure.data.map((trace) => (["bytes", "seconds"].includes(over(figure))
    ? { ...trace, x: Array.from(trace.x, (t) => place(figure, trace.meta.run, t)) } : trace));
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

// Turn the structure about its vertical axis, by 15 degrees.
function turn(sign) {
  const camera = (find("plot-solid").layout.scene || {}).camera || {};
  const { x, y, z } = camera.eye || { x: 1.25, y: 1.25, z: 1.25 };
  const angle = Math.atan2(y, x) + (sign * Math.PI) / 12, size = Math.hypot(x, y);
  const eye = { x: size * Math.cos(angle), y: size * Math.sin(angle), z };
  Plotly.relayout("plot-solid", { "scene.camera.eye": eye });
}

// Sort the rows of a table by a column, numbers as numbers.
function sort(head) {
  const body = head.closest("table").tBodies[0];
  const sign = head.ariaSort === "ascending" ? -1 : 1;
  const key = (row) => row.cells[head.cellIndex].textContent.replace(/,/g, "");
  const order = (a, b) => parseFloat(a) - parseFloat(b) || a.localeCompare(b);
  const rows = [...body.rows].sort((a, b) => sign * order(key(a), key(b)));
  for (const other of head.parentElement.cells) other.ariaSort = null;
  head.ariaSort = sign > 0 ? "ascending" : "descending";
  body.append(...rows);
}

root.classList.add("scripted");
page.figures.forEach(draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.figures.forEach(draw));
for (const button of document.querySelectorAll("button[data-turn]")) {
  button.addEventListener("click", () => turn(Number(button.dataset.turn)));
}
for (const head of document.querySelectorAll(".sortable th[scope=col]")) {
  head.tabIndex = 0;
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
}
const resize = (size) => page.figures.forEach(({ id }) => Plotly.relayout(id, size));
addEventListener("beforeprint", () => resize({ width: PRINTED, autosize: false }));
addEventListener("afterprint", () => resize({ width: null, autosize: true }));
