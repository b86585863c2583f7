// The rows of the table of runs: their columns, and how they are kept up to date.

import { el, figure, large, money, say, span, svg, whole } from "./dom.js";
import { stateMark } from "./views.js";

/** What the table tells of a run: how a column is called, sorted and written. */
export const COLUMNS = [
  { name: "name", head: "Run", value: (run) => run.name },
  { name: "task", head: "Task", value: (run) => run.task ?? "" },
  { name: "algorithm", head: "Algorithm", value: (run) => run.algorithm ?? "" },
  { name: "state", head: "State", value: (run) => run.state ?? "" },
  { name: "generations", head: "Generations", value: (run) => run.generations, text: whole },
  { name: "best", head: "Best elite", value: (run) => run.best, text: figure },
  { name: "frames", head: "Frames", value: (run) => run.frames, text: large },
  { name: "seconds", head: "Time", value: (run) => run.seconds, text: span },
  { name: "cost", head: "Cost", value: (run) => run.cost, text: money },
];

/** The row of a run, that can be ticked; its `update(run)` writes only what changed. */
export function runRow(run, ticked, tick) {
  const box = el("input", { type: "checkbox", onchange: () => tick(run.key, box.checked) });
  box.checked = ticked;
  box.setAttribute("aria-label", `Compare ${run.name}`);
  const line = svg("polyline", { class: "spark-line" });
  const spark = el("td", { role: "cell", class: "spark" },
    svg("svg", { viewBox: "0 0 80 24", "aria-hidden": "true", focusable: "false" }, line));
  const cells = COLUMNS.map(({ name, head }) =>
    el("td", { role: "cell", class: `c-${name}`, "data-label": head }));
  const problem = el("p", { class: "problem" });
  cells[0].append(el("a", { href: `#/run/${run.key}`, text: run.name }), problem);
  const tr = el("tr", { role: "row" },
    el("td", { role: "cell", class: "tick" }, box), spark, cells);
  const row = { tr, run, update };
  const stateCell = cells[COLUMNS.findIndex(({ name }) => name === "state")];
  let state = null;

  function update(next) {
    row.run = next;
    tr.classList.toggle("broken", Boolean(next.error));
    box.disabled = Boolean(next.error);
    problem.hidden = !next.error;
    say(problem, next.error ?? "");
    line.setAttribute("points", sparkPoints(next.sparkline ?? []));
    COLUMNS.forEach(({ name, value, text }, index) => {
      if (name === "name" || name === "state") return;
      const written = text ? text(value(next)) : value(next);
      say(cells[index], next.error ? "–" : written || "–");
    });
    const now = next.error ? "cannot be read" : next.state;
    if (now === state) return;
    state = now;
    stateCell.replaceChildren(next.error ? now : stateMark(next));
  }
  return row;
}

function sparkPoints(values) {
  const there = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...there), Math.max(...there)];
  return values.map((value, index) => value === null ? "" : [
    (2 + (index / Math.max(1, values.length - 1)) * 76).toFixed(1),
    (high > low ? 21 - ((value - low) / (high - low)) * 18 : 12).toFixed(1),
  ].join(",")).filter(Boolean).join(" ");
}

/** How two values of a column follow one another; what is not there comes first. */
export function order(a, b) {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}
