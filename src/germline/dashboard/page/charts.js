// Charts: thin wrappers over the global Plotly, in the colours of the page.

const CONFIG = { displayModeBar: false, displaylogo: false, responsive: true, doubleClick: "reset",
  showTips: false };
const drawn = new Map();
let plotly = null;

/** Load Plotly, unless it is there: it is large, and tables do not wait for it. */
export function loadCharts() {
  plotly ??= globalThis.Plotly ? Promise.resolve() : new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/page/plotly.js";
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => {
      plotly = null;  // to be tried again
      reject(new Error("The charts cannot be loaded."));
    });
    document.head.append(script);
  });
  return plotly;
}

/** Lines that differ by colour and by dash, as colour alone is not for everyone. */
export const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

/** Text that Plotly shows as it is, as it would read some tags. */
export function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** The page's colours now, light or dark. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: of("ink"), quiet: of("quiet"), ground: of("ground"), grid: of("grid"),
    accent: of("accent"), second: of("second"), branch: of("branch"),
    band: of("band"), faint: of("band-faint"),
    lines: [1, 2, 3, 4, 5, 6].map((n) => of(`line-${n}`)),
  };
}

/** A titled place for a chart; what it shows is also said in words. */
export function chartPlace(label, size = "") {
  const place = document.createElement("div");
  place.className = `chart ${size}`;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  return place;
}

/**
 * Draw a chart, or draw it anew. `make(colours)` gives {traces, layout}; it is called again when
 * the page turns light or dark. Zoom stays as long as `view` stays the same.
 */
export async function draw(place, make, view = "same") {
  drawn.set(place, { make, view });
  await loadCharts();
  if (!drawn.has(place)) return;
  const now = colours();
  const { traces, layout } = make(now);
  const axis = { gridcolor: now.grid, linecolor: now.grid, zeroline: false, automargin: true,
    exponentformat: "SI", tickfont: { color: now.quiet } };
  const titled = (given) => ({ ...axis, ...given,
    title: { text: plain(given?.title ?? ""), font: { color: now.quiet }, standoff: 8 } });
  await globalThis.Plotly.react(place, traces, {
    font: { family: "system-ui, sans-serif", size: 13, color: now.ink },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    // Fingers scroll the page; a mouse zooms in, and a double click shows all again.
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    margin: { l: 48, r: 12, t: 12, b: 40 }, hovermode: "closest", uirevision: view,
    hoverlabel: { bgcolor: now.ground, bordercolor: now.grid, font: { color: now.ink },
      namelength: -1 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false,
      itemdoubleclick: false },
    ...layout, xaxis: titled(layout.xaxis), yaxis: titled(layout.yaxis),
  }, CONFIG);
}

/** Give back what the charts within an element hold. */
export function dropCharts(element) {
  for (const place of drawn.keys()) {
    if (!element.contains(place)) continue;
    drawn.delete(place);
    globalThis.Plotly?.purge(place);
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [place, { make, view }] of drawn) draw(place, make, view).catch(() => {});
});

/** What curves can be drawn against: columns and words for them; cost where anything was paid. */
export function paidAxes(paid) {
  const axes = [["generation", "generation"], ["frames", "frames"], ["seconds", "wall time"]];
  return paid ? [...axes, ["cost", "cost"]] : axes;
}

/** The axis a column is drawn on: whole generations; long times in minutes or hours. */
export function alongside(name, values) {
  const last = values.findLast((value) => value !== null) ?? 0;
  if (name === "generation") return { values, axis: generationAxis(last) };
  if (name !== "seconds") return { values, axis: { title: name } };
  const [size, unit] = [[3600, "hours"], [60, "minutes"], [1, "seconds"]]
    .find(([one]) => last > 2 * one || one === 1);
  const scaled = values.map((value) => (value === null ? null : value / size));
  return { values: scaled, axis: { title: `wall time (${unit})` } };
}

/** An axis of generations up to the last: whole numbers only. */
export function generationAxis(last) {
  return { title: "generation", tickformat: ",d", ...(last <= 8 ? { dtick: 1 } : {}) };
}

/** How a curve is drawn: with a mark for every number while there are few. */
export function lineMode(values) {
  return values.length <= 20 ? "lines+markers" : "lines";
}
