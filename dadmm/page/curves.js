// The curves of penalties and budgets, with the chosen edge.

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
    const back = { ...thick, dash: "dot" };
    const forth = own.column(own.forth || own.eta, k, own.n);
    const [i, j] = key.split(" – "), prefix = only ? "" : `${name}: `;
    const ways = own.forth ? `${i} to ${j}` : `edge ${key}`;
    const more = { x, mode: "lines", hovertemplate };
    traces.push({ ...more, y: forth, name: prefix + ways, line: thick });
    if (own.forth) {
      const other = own.column(own.back, k, own.n);
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
    const ways = [[k, `${i} to ${j}`, 2.5], [own.n + k, `${j} to ${i}`, 1.4]];
    if (own.ways === 1) ways.splice(0, 2, [k, `edge ${key}`, 2.5]);
    ways.forEach(([e, way, width]) => {
      const of = { x: [...own.frames], mode: "lines", hovertemplate: "%{y:.4g}" };
      const colour = only ? "@blue" : own.look.colour;
      const y = own.column(own.spent, e, own.ways * own.n);
      const most = own.column(own.budget, e, own.ways * own.n);
      const step = { color: colour, width, dash: "dash", shape: "hv" };
      traces.push({ ...of, y: most, name: `${prefix}budget, ${way}`, line: step });
      const line = { color: only ? "@orange" : colour, width };
      traces.push({ ...of, y, name: `${prefix}spent, ${way}`, line });
    });
  }
  return traces;
}

function escaped(words) {
  return words.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}
