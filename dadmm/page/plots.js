// Draw the figures of the page with plotly, in the colours of the page.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;
const logIterations = document.getElementById("log-iterations");
const CONFIG = {
  displaylogo: false,
  responsive: true,
  plotlyServerURL: "",  // nothing is sent anywhere
  showSendToCloud: false,
  modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d", "autoScale2d"],
};

function colours() {
  return page.colours[dark.matches ? "dark" : "light"];
}

// Return a copy in which "@name" and "@name/opacity" are colours.
function themed(value) {
  if (typeof value === "string" && value.startsWith("@")) {
    const [name, opacity] = value.slice(1).split("/");
    const found = colours()[name];
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

function axis(given, logarithmic) {
  const usual = {
    automargin: true, color: "@text", gridcolor: "@grid", linecolor: "@axis",
    zeroline: false, ticks: "outside", tickcolor: "@axis",
  };
  const found = { ...usual, ...given };
  if (logarithmic) found.type = "log";
  const powers = found.type === "log" && found.dtick > 0;
  if (powers) found.exponentformat = "power";
  found.tickfont = { size: powers ? 10 : 12 };  // powers are drawn larger
  return found;
}

function iterationAxis(given) {
  const found = axis(given, logIterations && logIterations.checked);
  if (found.type !== "log") return found;
  const ticks = [];
  for (let power = 0; power < 10; power++) {
    for (const step of [1, 2, 5]) ticks.push(step * 10 ** power);
  }
  return { ...found, tickvals: ticks, ticktext: ticks.map(String) };
}

function layout(figure) {
  const timed = figure.kind === "iterations";
  const given = figure.layout;
  return themed({
    autosize: true,
    height: 308,
    margin: { l: 58, r: 10, t: 30, b: 44 },  // buttons are above the data
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: "@text", family: "system-ui, sans-serif", size: 13 },
    hoverlabel: { bgcolor: "@paper", bordercolor: "@axis", font: { color: "@text" } },
    hovermode: timed ? "x unified" : "closest",
    showlegend: false,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "@faint", activecolor: "@text" },
    ...given,
    xaxis: timed ? iterationAxis(given.xaxis) : axis(given.xaxis || {}, false),
    yaxis: axis(given.yaxis || {}, false),
  });
}

function draw(figure) {
  Plotly.react(figure.id, themed(figure.data), layout(figure), CONFIG);
}

function drawAll() {
  page.figures.filter((figure) => figure.data.length).forEach(draw);
}

// Turn a camera about the vertical axis, or tilt it.
function turn(button) {
  const plot = document.getElementById(button.dataset.plot);
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

function hasWebGL() {
  const canvas = document.createElement("canvas");
  return Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl"));
}

function start() {
  root.classList.add("scripted");
  try {
    if (!hasWebGL()) {  // structures stay pictures
      root.classList.add("flat");
      const isFlat = (figure) => figure.data.every((own) => own.type !== "scatter3d");
      page.figures = page.figures.filter(isFlat);
    }
    drawAll();
  } catch (error) {  // pictures are shown instead
    root.classList.remove("scripted");
    throw error;
  }
  dark.addEventListener("change", drawAll);
  if (logIterations) logIterations.addEventListener("change", drawAll);
  document.querySelectorAll("button[data-turn]").forEach((button) => {
    button.addEventListener("click", () => turn(button));
  });
}

start();
