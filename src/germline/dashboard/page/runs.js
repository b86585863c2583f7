// Runs: all of a folder in one table, and the curves of those that are ticked.

import { get, poll, runPath } from "./api.js";
import { DASHES, alongside, chartPlace, draw, lineMode, paidAxes, plain } from "./charts.js";
import { announce, choice, el, say, sentence, whole } from "./dom.js";
import { COLUMNS, order, runRow } from "./rows.js";
import { heading } from "./views.js";

const MEASURES = [["elite", "elite"], ["best", "best"], ["mean", "mean"]];
// Kept while other views are shown, so that coming back finds everything as it was left.
const chosen = { keys: new Set(), sort: "name", down: false, filter: "", x: "generation",
  y: "elite" };

/** Show the runs of the folder. */
export async function showRuns(main, parts, signal) {
  const first = await get("/api/runs", signal);
  const rows = new Map();
  const body = el("tbody", { role: "rowgroup" });
  const heads = el("tr", { role: "row" }, el("th", { scope: "col", role: "columnheader" },
    el("span", { class: "unseen", text: "Compare" })), el("th", { scope: "col",
    role: "columnheader", text: "Elite" }), COLUMNS.map(columnHead));
  const grid = el("table", { class: "runs", role: "table", "aria-label": "Runs" },
    el("thead", { role: "rowgroup" }, heads), body);
  const count = el("p", { class: "quiet", role: "status" });
  const filter = el("input", { type: "search", value: chosen.filter, oninput: () => {
    chosen.filter = filter.value;
    arrange();
  } });
  // On a phone the table is a list of cards, without a head to sort by.
  const sorter = choice("Sort", COLUMNS.map(({ name, head }) => [name, head]), chosen.sort, sortBy);
  sorter.classList.add("runs-sort");
  const turn = el("button", { class: "small runs-sort", text: "Reverse",
    onclick: () => sortBy(chosen.sort) });
  const chart = chartPlace("Curves of the runs that are ticked", "tall");
  const trouble = el("div");
  const hint = el("p", { class: "quiet", text: "Tick two or more runs above to compare them." });
  const compare = el("section", { "aria-label": "Compare" }, el("h2", { text: "Compare" }), hint,
    el("div", { class: "bar" }, choice("Score", MEASURES, chosen.y, (name) => set("y", name)),
      choice("Against", paidAxes(first.runs.some((run) => run.cost)), chosen.x,
        (name) => set("x", name))), trouble, chart);
  main.append(heading("Runs"), el("div", { class: "bar" },
    el("label", { class: "choice grow" }, el("span", { text: "Filter" }), filter),
    sorter, turn), count, grid, compare);
  let shown = first;
  update(first);
  poll(2, async () => {
    try {
      shown = await get("/api/runs", signal);
      update(shown);
    } catch (error) {
      if (!signal.aborted) say(count, error.message);
    }
  }, signal);

  function columnHead({ name, head }) {
    const button = el("button", { class: "sort", text: head, onclick: () => sortBy(name) });
    return el("th", { scope: "col", role: "columnheader", class: `c-${name}`, "data-name": name },
      button);
  }

  function sortBy(name) {
    const { head, text } = COLUMNS.find((column) => column.name === name);
    const highestFirst = Boolean(text);  // numbers have a way to be written
    chosen.down = chosen.sort === name ? !chosen.down : highestFirst;
    chosen.sort = name;
    sorter.querySelector("select").value = name;
    arrange();
    announce(`Sorted by ${head}, ${chosen.down ? "descending" : "ascending"}`);
  }

  function update(answer) {
    const seen = new Set();
    for (const run of answer.runs) {
      seen.add(run.key);
      if (!rows.has(run.key)) rows.set(run.key, runRow(run, chosen.keys.has(run.key), tick));
      rows.get(run.key).update(run);
    }
    for (const [key, row] of rows) {
      if (seen.has(key)) continue;
      row.tr.remove();
      rows.delete(key);
      chosen.keys.delete(key);
    }
    grid.classList.toggle("free", !answer.runs.some((run) => run.cost));
    arrange();
    compareThem();
  }

  function arrange() {
    const column = COLUMNS.find(({ name }) => name === chosen.sort);
    const wanted = chosen.filter.toLowerCase();
    const words = (run) => [run.name, run.title, run.task, run.algorithm, run.state].join(" ");
    const list = [...rows.values()].filter(({ run }) => words(run).toLowerCase().includes(wanted));
    list.sort((a, b) => order(column.value(a.run), column.value(b.run)) * (chosen.down ? -1 : 1)
      || order(a.run.name, b.run.name));
    for (const th of heads.querySelectorAll("[data-name]")) {
      const here = th.dataset.name === chosen.sort;
      if (here) th.setAttribute("aria-sort", chosen.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    const focused = document.activeElement;
    const now = list.map(({ tr }) => tr);
    const before = [...body.children];
    if (now.length !== before.length || now.some((tr, index) => before[index] !== tr)) {
      body.replaceChildren(...now);
      if (body.contains(focused)) focused.focus({ preventScroll: true });
    }
    const folder = shown ? ` in ${shown.folder}` : "";
    if (!rows.size) say(count, `No runs${folder} yet; begin one with: germline train cartpole`);
    else say(count, list.length === rows.size ? `${whole(rows.size)} runs${folder}`
      : `${whole(list.length)} of ${whole(rows.size)} runs${folder}`);
  }

  function tick(key, ticked) {
    if (ticked) chosen.keys.add(key);
    else chosen.keys.delete(key);
    compareThem();
  }

  function set(name, value) {
    chosen[name] = value;
    compareThem();
  }

  async function compareThem() {
    const ticked = [...chosen.keys].map((key) => rows.get(key)?.run);
    const runs = ticked.filter((run) => run && !run.error);
    compare.classList.toggle("empty", runs.length === 0);
    hint.hidden = runs.length > 0;
    if (runs.length === 0) return;
    const state = runs.map((run) => [run.key, run.generations]);
    const wanted = JSON.stringify([chosen.x, chosen.y, state]);
    if (wanted === compare.dataset.shown) return;
    compare.dataset.shown = wanted;
    try {
      const curves = await Promise.all(runs.map((run) =>
        get(`${runPath(run.key, "curves")}?points=2000`, signal)));
      if (compare.dataset.shown !== wanted) return;
      await drawCompare(chart, runs, curves.map(({ columns }) => columns));
      trouble.replaceChildren();
    } catch (error) {
      if (signal.aborted) return;
      compare.dataset.shown = "";
      trouble.replaceChildren(sentence(error));
    }
  }
}

function drawCompare(chart, runs, curves) {
  const longest = Math.max(...curves.map((columns) => columns[chosen.x].at(-1) ?? 0));
  return draw(chart, (now) => ({
    traces: curves.map((columns, index) => ({
      type: "scatter", mode: lineMode(columns.generation), name: plain(runs[index].name),
      y: columns[chosen.y],
      x: alongside(chosen.x, [...columns[chosen.x], longest]).values.slice(0, -1),
      line: { width: 2, color: now.lines[index % now.lines.length],
        dash: DASHES[Math.floor(index / now.lines.length + index) % DASHES.length] },
    })),
    layout: { showlegend: true, yaxis: { title: chosen.y },
      xaxis: alongside(chosen.x, [longest]).axis },
  }), `${chosen.x} ${chosen.y}`);
}
