// Lineage: how an individual came to be, from the first birth to its last gene.

import { answers, available, get, pause, runPath } from "./api.js";
import { chartPlace, draw, generationAxis, plain } from "./charts.js";
import { choice, el, figure, say, signed, table, whole } from "./dom.js";
import { heading, idLink, runLinks, runOf, trail } from "./views.js";

const ROWS = 500;
const SORTS = [["time", "by generation"], ["gain", "largest gains first"]];
const LEGEND = "▲ better than its parent, ▼ worse, ● neither; the larger, the more. Grey: others who "
  + "had children, whose lines died out or lead elsewhere.";

/** Show the ancestors of an individual over time, and the lines that died out in grey. */
export async function showLineage(main, [key, , asked], signal) {
  const run = await runOf(key, signal);
  const id = asked ?? run.champion;
  if (!id) throw new Error("This run has no champion yet.");
  const chart = chartPlace("Score of every ancestor by generation, as in the table", "tall");
  const reading = el("p", { class: "quiet", role: "status" });
  const list = el("div");
  let [answer, sort, all] = [null, "time", false];
  const title = `Lineage of ${id.slice(0, 8)}`;
  main.append(trail(run, "Lineage"), heading(title, `${title} in ${run.name}`),
    runLinks(run, id === run.champion ? "lineage" : ""), reading, chart,
    el("p", { class: "quiet", text: LEGEND }), answers ? el("p", { class: "quiet",
      text: "Who is no link here is not part of the exported page." }) : "", el("h2", { text: "Ancestors" }),
    el("div", { class: "bar" }, choice("Sort", SORTS, sort, (value) => {
      sort = value;
      listThem();
    })), list);
  while (!signal.aborted) {
    answer = await get(runPath(key, "lineage", id), signal);
    await drawLineage(chart, answer, open);
    if (signal.aborted) return;
    const done = answer.read >= 1;
    const [before, others] = [answer.ancestors.length - 1, answer.branches.id.length];
    say(reading, done ? `${whole(before)} ancestors; ${whole(others)} others had children.`
      : `Reading the run: ${Math.floor(answer.read * 100)} %`);
    if (done || !list.children.length) listThem();
    if (done) return;
    await pause(0.15, signal);
  }

  function open(other) {
    if (!available(runPath(key, "individuals", other))) return;
    location.hash = `#/run/${key}/individual/${other}`;
  }

  function listThem() {
    if (!answer) return;
    const people = [...answer.ancestors];
    if (sort === "gain") people.sort((a, b) => (b.gain ?? -Infinity) - (a.gain ?? -Infinity));
    const most = Math.max(...people.map(({ gain }) => Math.abs(gain ?? 0))) || 1;
    const rows = (all ? people : people.slice(0, ROWS)).map((one) => [
      whole(one.generation), idLink(key, one.id), one.seed === null ? "–" : String(one.seed),
      figure(one.sigma), one.operator ?? "–", whole(one.episodes), figure(one.mean),
      gainCell(one.gain, most)]);
    list.replaceChildren(table("Ancestors", ["Generation", "Individual", "Seed", "σ", "Operator",
      "Episodes", "Mean", "Gain"], rows, "bounded"));
    if (!all && people.length > ROWS) {
      list.append(el("button", { text: `Show all ${whole(people.length)}`,
        onclick: () => {
          all = true;
          listThem();
          list.querySelector("[tabindex]").focus({ preventScroll: true });
        } }));
    }
  }
}

function gainCell(gain, most) {
  if (gain === null) return "–";
  const bar = el("span", { class: gain < 0 ? "gain loss" : "gain", "aria-hidden": "true" });
  bar.style.width = `${Math.max(1, (Math.abs(gain) / most) * 56).toFixed(1)}px`;
  return el("span", { class: "gained" }, el("span", { text: signed(gain) }), bar);
}

async function drawLineage(chart, answer, open) {
  const { ancestors, branches } = answer;
  const dead = { x: [], y: [] };
  branches.id.forEach((_, index) => {
    dead.x.push(branches.parent_generation[index], branches.generation[index], null);
    dead.y.push(branches.parent_mean[index], branches.mean[index], null);
  });
  const most = Math.max(...ancestors.map(({ gain }) => Math.abs(gain ?? 0))) || 1;
  const last = branches.generation.reduce((a, b) => Math.max(a, b), ancestors.at(-1).generation);
  const fresh = !chart.classList.contains("js-plotly-plot");
  await draw(chart, (now) => ({
    traces: [
      { type: "scatter", mode: "lines", name: "other lines", ...dead, hoverinfo: "skip",
        line: { color: now.branch, width: 1 } },
      { type: "scatter", mode: "markers", name: "", showlegend: false, x: branches.generation,
        y: branches.mean, customdata: branches.id, marker: { size: 4, color: now.branch },
        text: branches.id, hovertemplate: "%{text}<br>mean %{y:.4g}<extra></extra>" },
      { type: "scatter", mode: "lines+markers", name: "this line",
        x: ancestors.map((one) => one.generation), y: ancestors.map((one) => one.mean),
        customdata: ancestors.map((one) => one.id),
        text: ancestors.map((one) => `${one.id}<br>mean ${figure(one.mean)}, gain ${
          one.gain === null ? "–" : signed(one.gain)}<br>${plain(one.operator ?? "birth")}`),
        hovertemplate: "%{text}<extra></extra>", connectgaps: true,
        line: { color: now.accent, width: 2 },
        marker: { color: ancestors.map((one) => ((one.gain ?? 0) < 0 ? now.second : now.accent)),
          symbol: ancestors.map((one) => (!one.gain ? "circle"
            : one.gain < 0 ? "triangle-down" : "triangle-up")),
          line: { color: now.ground, width: 1 },
          size: ancestors.map((one) => 7 + 11 * Math.sqrt(Math.abs(one.gain ?? 0) / most)) } },
    ],
    layout: { xaxis: generationAxis(last), showlegend: true,
      yaxis: { title: "mean score" } },
  }));
  if (fresh) {
    chart.on("plotly_click", ({ points: [point] }) => {
      if (point?.customdata) open(point.customdata);
    });
  }
}
