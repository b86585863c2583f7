// Run: how one run is getting on, drawn anew as its generations finish.

import { get, pause, poll, runPath } from "./api.js";
import { alongside, chartPlace, draw, lineMode, paidAxes } from "./charts.js";
import { choice, el, facts, figure, large, money, span, table, tell, whole } from "./dom.js";
import { heading, idLink, runLinks, runOf, stateMark } from "./views.js";

const LISTED = 500;
const RATES = [["frames_per_second", "frames per second"],
  ["evaluations_per_second", "evaluations per second"]];

/** Show a run: its facts, curves, throughput, workers, sessions and spec. */
export async function showRun(main, [key], signal) {
  let run = await runOf(key, signal);
  const axis = { x: "generation", rate: "frames_per_second" };
  let [curves, bands, seen] = [null, null, ""];
  const top = el("div");
  const summary = el("div");
  const score = chartPlace("Best, mean and elite score with the spread of the population", "tall");
  const rate = chartPlace("Throughput");
  const workers = el("div");
  const sessions = el("div");
  const trouble = el("div");
  const reading = el("p", { class: "quiet" });
  const numbers = el("details", { ontoggle: () => { if (numbers.open) listNumbers(); } },
    el("summary", { text: "The same as a table" }));
  main.append(heading(run.name), top, trouble, summary,
    el("section", {}, el("h2", { text: "Score" }), el("div", { class: "bar" },
      choice("Against", paidAxes(run.cost), axis.x,
        (name) => { axis.x = name; drawAll(); })), reading, score, numbers),
    el("section", {}, el("h2", { text: "Throughput" }), el("div", { class: "bar" },
      choice("Measure", RATES, axis.rate, (name) => { axis.rate = name; drawAll(); })), rate),
    el("section", {}, el("h2", { text: "Workers" }), workers),
    el("section", {}, el("h2", { text: "Sessions" }), sessions),
    el("details", {}, el("summary", { text: "Spec" }),
      el("pre", { tabindex: "0", role: "region", "aria-label": "Spec", text: run.spec })));

  let first = true;
  poll(2, async () => {
    try {
      if (!first) run = await runOf(key, signal);
      first = false;
      tell(trouble, null);
      const { state, generations, evaluations } = run;
      const now = JSON.stringify([state, generations, evaluations, run.sessions.length]);
      if (now === seen) return;
      describe();
      const [nextCurves, team] = await Promise.all([
        get(`${runPath(key, "curves")}?points=2000`, signal),
        get(runPath(key, "workers"), signal)]);
      curves = nextCurves.columns;
      const focused = workers.contains(document.activeElement);
      workers.replaceChildren(workerTable(team));
      if (focused) workers.querySelector("[tabindex]")?.focus({ preventScroll: true });
      if (numbers.open) listNumbers();
      await drawAll();
      await readBands();
      seen = now;
    } catch (error) {
      if (!signal.aborted) tell(trouble, error);
    }
  }, signal);

  async function readBands() {
    for (;;) {
      bands = await get(`${runPath(key, "bands")}?points=200`, signal);
      reading.textContent = bands.read < 1
        ? `Reading the population: ${Math.floor(bands.read * 100)} %` : "";
      await drawAll();
      if (bands.read >= 1) return;
      await pause(0.1, signal);
      signal.throwIfAborted();
    }
  }

  function listNumbers() {
    if (!curves) return;
    numbers.replaceChildren(numbers.firstChild, curveTable(curves));
  }

  // The link that has the focus keeps it, even where it now leads to another champion.
  function describe() {
    const links = () => [...top.querySelectorAll("a"), ...summary.querySelectorAll("a")];
    const focused = links().indexOf(document.activeElement);
    top.replaceChildren(runLinks(run, "run"));
    summary.replaceChildren(facts(factsOf(run)));
    links()[focused]?.focus({ preventScroll: true });
    if (sessions.dataset.count === String(run.sessions.length)) return;
    sessions.dataset.count = String(run.sessions.length);
    sessions.replaceChildren(sessionList(run.sessions));
  }

  async function drawAll() {
    if (!curves || signal.aborted) return;
    await draw(score, (now) => scoreChart(curves, bands?.columns, axis.x, now), axis.x);
    const x = alongside(axis.x, curves[axis.x]);
    const [, words] = RATES.find(([name]) => name === axis.rate);
    await draw(rate, (now) => ({
      traces: [{ type: "scatter", mode: lineMode(x.values), x: x.values, y: curves[axis.rate],
        name: words, line: { color: now.accent, width: 1.5 } }],
      layout: { xaxis: x.axis, showlegend: false, yaxis: { title: words, rangemode: "tozero" } },
    }), axis.x + axis.rate);
  }
}

function factsOf(run) {
  return [
    ["State", stateMark(run, true)], ["Title", run.title], ["Task", run.task],
    ["Policy", run.policy], ["Algorithm", run.algorithm], ["Arithmetic", run.arithmetic],
    ["Seed", String(run.seed ?? "–")],
    ["Generations", whole(run.generations)], ["Evaluations", whole(run.evaluations)],
    ["Failures", run.failures ? whole(run.failures) : null],
    ["Best elite", figure(run.best)], ["Last elite", figure(run.elite)],
    ["Champion", run.champion ? idLink(run.key, run.champion) : "–"],
    ["Frames", large(run.frames)], ["Steps", large(run.steps)], ["Time", span(run.seconds)],
    ["Time to go", run.seconds_to_go === null ? null : `about ${span(run.seconds_to_go)}`],
    ["Cost", run.cost ? money(run.cost) : null],
    ["Cost to go", run.cost_to_go ? `about ${money(run.cost_to_go)}` : null],
    ["Pruned", run.pruned === null ? null : `before generation ${whole(run.pruned)}`],
    ["Playing", run.unplayable],
  ];
}

function scoreChart(curves, bands, axis, now) {
  const x = alongside(axis, curves[axis]);
  const traces = [];
  if (bands?.generation.length) {
    const at = alongside(axis, [...placed(bands.generation, curves, axis), curves[axis].at(-1)])
      .values.slice(0, -1);
    traces.push(...band(at, bands.q05, bands.q95, now.faint, "5–95 %"));
    traces.push(...band(at, bands.q25, bands.q75, now.band, "25–75 %"));
  }
  const mode = lineMode(x.values);
  const line = (name, color, dash, width) =>
    ({ type: "scatter", mode, name, x: x.values, y: curves[name], line: { color, dash, width } });
  traces.push(line("mean", now.quiet, "dot", 2), line("best", now.second, "dash", 1.5),
    line("elite", now.accent, "solid", 2.5));
  return { traces, layout: { showlegend: true, hovermode: "x unified", xaxis: x.axis,
    yaxis: { title: "score" } } };
}

function band(x, low, high, fillcolor, name) {
  const side = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip" };
  return [{ ...side, y: low, showlegend: false },
    { ...side, y: high, name, fill: "tonexty", fillcolor }];
}

// Bands are known by generation alone; the curves say where a generation is on another axis.
function placed(generations, curves, axis) {
  if (axis === "generation") return generations;
  let next = 0;
  return generations.map((generation) => {
    while (next < curves.generation.length - 1 && curves.generation[next] < generation) next += 1;
    return curves[axis][next];
  });
}

// The last generation comes first; of very many, some.
function curveTable(curves) {
  const all = curves.generation.map((_, index) => index).reverse();
  const step = Math.ceil(all.length / LISTED);
  const rows = all.filter((_, place) => place % step === 0).map((index) => [
    whole(curves.generation[index]), ...["elite", "best", "mean"].map((name) =>
      figure(curves[name][index])), large(curves.frames[index]), span(curves.seconds[index])]);
  return table("Score by generation",
    ["Generation", "Elite", "Best", "Mean", "Frames", "Time"], rows, "bounded");
}

function workerTable(team) {
  const note = (text) => el("p", { class: "quiet", text });
  if (!team.workers.length) return note("Of no finished generation are all evaluations here.");
  const rows = team.workers.map((worker) => [worker.name, whole(worker.evaluations),
    span(worker.seconds), span(worker.busy)]);
  const failed = team.failures ? `; ${whole(team.failures)} evaluations failed` : "";
  return el("div", {},
    note(`Who evaluated generation ${whole(team.generation)}${failed}`),
    table("Workers", ["Worker", "Evaluations", "Mean time", "Busy"], rows));
}

function sessionList(sessions) {
  if (!sessions.length) return el("p", { class: "quiet", text: "None is on record." });
  return el("ol", { class: "sessions" }, sessions.map(({ started, about }) => el("li", {},
    el("details", {}, el("summary", {},
      el("time", { datetime: new Date(started * 1000).toISOString(),
        text: new Date(started * 1000).toLocaleString() })),
    facts(Object.entries(about ?? {}).map(([name, value]) =>
      [name, typeof value === "string" ? value : JSON.stringify(value)]))))));
}
