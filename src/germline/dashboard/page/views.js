// What the views of a run share: their heading, and the links from one to the next.

import { answers, available, get, keptPaths, runPath } from "./api.js";
import { el } from "./dom.js";

/** A view's heading; it takes the focus when the view is come to, and names the document. */
export function heading(text, title = text) {
  document.title = `${title} – Germline`;
  return el("h1", { text, tabindex: "-1" });
}

/** The links between the views of a run; `here` is the one that is shown. */
export function runLinks(run, here) {
  const at = `#/run/${run.key}`;
  const champion = run.champion;
  const pages = [["run", at, "Run"]];
  if (run.generations > (run.pruned ?? 0) && (!answers || keptPaths(runPath(run.key, "population/")).length)) {
    pages.push(["population", `${at}/population`, "Population"]);
  }
  if (champion && available(runPath(run.key, "lineage", champion))) {
    pages.push(["lineage", `${at}/lineage/${champion}`, "Lineage"]);
  }
  if (champion && available(runPath(run.key, "individuals", champion))) {
    pages.push(["champion", `${at}/individual/${champion}`, "Champion"]);
  }
  const nav = el("nav", { class: "tabs", "aria-label": "This run" });
  for (const [name, href, text] of pages) {
    nav.append(el("a", { href, text, "aria-current": name === here ? "page" : null }));
  }
  return nav;
}

/** Where one is: the runs, this run, and what is shown of it. */
export function trail(run, last) {
  const items = [];
  if (!answers) items.push(el("li", {}, el("a", { href: "#/", text: "Runs" })));
  items.push(el("li", {}, el("a", { href: `#/run/${run.key}`, text: run.name })));
  items.push(el("li", { "aria-current": "page", text: last }));
  return el("nav", { class: "trail", "aria-label": "Where you are" }, el("ol", {}, items));
}

/** A run's row, for the views below it. */
export async function runOf(key, signal) {
  const run = await get(runPath(key), signal);
  if (run.error) throw new Error(run.error);
  return run;
}

/** The state of a run as a word with a mark of its own shape, and what finished it if asked for. */
export function stateMark(run, reason = false) {
  const mark = { running: "▶", finished: "✓", stopped: "■" }[run.state] ?? "·";
  const words = reason && run.finished_by ? `${run.state} by ${run.finished_by}` : run.state ?? "–";
  return el("span", { class: `state ${run.state}` },
    el("span", { "aria-hidden": "true", text: `${mark} ` }), words);
}

/** A link to an individual, by the first digits of its id; an exported page has not everyone. */
export function idLink(key, id, text = id.slice(0, 8)) {
  if (!available(runPath(key, "individuals", id))) return el("span", { class: "id", text });
  return el("a", { class: "id", href: `#/run/${key}/individual/${id}`, text });
}
