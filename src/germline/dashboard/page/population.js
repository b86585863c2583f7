// Population: everyone of one generation as a cloud, and a slider through the generations.

import { answers, available, get, keptPaths, pause, poll, runPath } from "./api.js";
import { chartPlace } from "./charts.js";
import { Cloud, drawHistogram } from "./cloud.js";
import { choice, el, figure, say, table, tell, whole } from "./dom.js";
import { heading, idLink, runLinks, runOf, trail } from "./views.js";

const TOP = 20;
const axesChosen = { x: null, y: "fitness" };

/** Show a generation's population; without a number the last one that is finished. */
export async function showPopulation(main, [key, , number], signal) {
  let run = await runOf(key, signal);
  const known = answers ? keptGenerations(key) : null;
  const [low, high] = known ? [0, known.length - 1] : [run.pruned ?? 0, run.generations - 1];
  if (high < low) throw new Error("Of no finished generation is everybody here.");
  const asked = Number.parseInt(number ?? "", 10);
  let at = known ? Math.max(0, known.findIndex((one) => one.generation === asked))
    : Number.isNaN(asked) ? high : Math.min(high, Math.max(low, asked));
  let data = null;
  let loading = null;
  const cloud = new Cloud("The population as a cloud of points; the highest are listed below", {
    opens: (index) => available(runPath(key, "individuals", data.individual[index])),
    open: (index) => { location.hash = `#/run/${key}/individual/${data.individual[index]}`; },
  });
  signal.addEventListener("abort", () => cloud.leave());
  const shown = el("output", { for: "generation" });
  const slider = el("input", { type: "range", id: "generation", min: low, max: high, step: 1,
    value: at, oninput: () => { at = Number(slider.value); label(); load(0.12); } });
  const axes = el("div", { class: "bar" });
  const counts = el("p", { role: "status", class: "quiet" });
  const bars = chartPlace("How many evaluations have which value", "small");
  const highest = el("div");
  const trouble = el("div");
  const leads = el("div", { class: "bar", hidden: low === high },
    el("label", { class: "choice grow" }, el("span", { text: "Generation" }), slider), shown);
  main.append(trail(run, "Population"), heading("Population", `Population of ${run.name}`),
    runLinks(run, "population"), leads, axes, trouble, counts, cloud.place, bars, highest);
  label();
  await load(0);
  if (!known) poll(5, follow, signal);

  function label() {
    say(shown, whole(known ? known[at].generation : at));
    slider.setAttribute("aria-valuetext", `generation ${shown.textContent}`);
  }

  // What was asked for before is dropped: only the answer to the last question is shown.
  async function load(wait) {
    loading?.abort();
    loading = new AbortController();
    const own = loading;
    const both = AbortSignal.any([signal, own.signal]);
    await pause(wait, both);
    if (both.aborted) return;
    try {
      const [path, answer] = await ask(both);
      if (both.aborted) return;
      await show(path, answer, both);
      if (!both.aborted) tell(trouble, null);
    } catch (error) {
      if (!both.aborted) tell(trouble, error);
    }
  }

  async function ask(both) {
    const { path: kept } = known?.[at] ?? {};
    if (kept) return [kept, await get(kept, both)];
    const path = (x) => `${runPath(key, "population", at)}?x=${encodeURIComponent(x)}`
      + `&y=${encodeURIComponent(axesChosen.y)}`;
    if (axesChosen.x) {
      try {
        return [path(axesChosen.x), await get(path(axesChosen.x), both)];
      } catch (error) {
        if (error.status !== 404 && error.status !== 422) throw error;
        Object.assign(axesChosen, { x: null, y: "fitness" });  // another run's behaviour
      }
    }
    const answer = await get(path("steps"), both);
    axesChosen.x = answer.names.includes("behaviour.0") ? "behaviour.0" : "steps";
    if (axesChosen.x === "steps") return [path("steps"), answer];
    return [path(axesChosen.x), await get(path(axesChosen.x), both)];
  }

  async function show(path, answer, both) {
    data = answer;
    const names = known ? known[at] : { ...axesChosen };
    if (!known) history.replaceState(null, "", `#/run/${key}/population/${at}`);
    if (!known && axes.dataset.names !== answer.names.join()) {
      axes.dataset.names = answer.names.join();
      const pairs = answer.names.map((name) => [name, name]);
      const pick = (axis) => (name) => { axesChosen[axis] = name; load(0); };
      axes.replaceChildren(choice("Across", pairs, names.x, pick("x")),
        choice("Up", pairs, names.y, pick("y")));
    }
    const marked = [];
    answer.individual.forEach((id, index) => { if (id === answer.champion) marked.push(index); });
    await cloud.show({ x: answer.x, y: answer.y, ids: answer.individual }, names, marked);
    await new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve, 0)); });
    if (both.aborted) return;
    if (!answers) measured(path);
    say(counts, countsOf(answer));
    await drawHistogram(bars, answer.y, names.y);
    if (both.aborted) return;
    highest.replaceChildren(el("h2", { text: `Highest ${names.y}` }), topTable(answer, names));
  }

  function topTable(answer, names) {
    const ranks = answer.y.map((_, index) => index).filter((index) => answer.y[index] !== null);
    ranks.sort((a, b) => answer.y[b] - answer.y[a]);
    const rows = ranks.slice(0, TOP).map((index) => [
      el("span", {}, idLink(key, answer.individual[index]),
        answer.individual[index] === answer.champion ? " ★ champion" : ""),
      figure(answer.y[index]), figure(answer.x[index])]);
    return table(`Highest ${names.y}`, ["Individual", names.y, names.x], rows);
  }

  async function follow() {
    try {
      run = await runOf(key, signal);
      slider.max = String(run.generations - 1);
      leads.hidden = run.generations - 1 <= low;
      tell(trouble, null);
    } catch (error) {
      if (!signal.aborted) tell(trouble, error);
    }
  }
}

function countsOf({ generation, x, evaluations, failures }) {
  const failed = failures ? `, ${whole(failures)} failed` : "";
  const points = `Generation ${whole(generation)}: ${whole(x.length)} points${failed}`;
  const others = evaluations - failures - x.length;
  if (others <= 0) return points;
  return x.length < evaluations / 2
    ? `${points}, drawn from ${whole(evaluations)} evaluations`
    : `${points}; ${whole(others)} evaluations more of candidates that played again`;
}

function measured(path) {
  performance.clearMeasures("cloud");
  performance.measure("cloud", path);
}

function keptGenerations(key) {
  const start = runPath(key, "population/");
  return keptPaths(start).map((path) => {
    const url = new URL(path, "http://kept");
    return { path, generation: Number(path.slice(start.length).split("?")[0]),
      x: url.searchParams.get("x"), y: url.searchParams.get("y") };
  }).sort((a, b) => a.generation - b.generation);
}
