// File: a genome file that was dropped on the page or opened, played.

import { el, facts, whole } from "./dom.js";
import { makePlayer } from "./player.js";
import { heading } from "./views.js";

/** Show a genome file: a film of it, and what the film says about it. */
export async function showFile(main, file, signal) {
  if (!file) {
    main.append(heading("Genome file"),
      el("p", { text: "Open a genome file with the button above, or drop one here." }));
    return;
  }
  const about = el("div");
  const player = makePlayer({
    source: (seed) => ({ path: `/api/film?seed=${seed}`, body: file }),
    title: file.name,
    about: (record) => about.replaceChildren(facts(recordFacts(record)),
      el("div", { class: "digest" }, facts([
        ["Digest", el("code", { class: "id long", text: record.digest })]]))),
  }, signal);
  main.append(heading(file.name), player.place, about);
  player.start();
}

function recordFacts(record) {
  return [
    ["Id", el("code", { class: "id", text: record.id })],
    ["Task", record.task],
    ["Policy", record.policy],
    ["Genes", whole(record.genes)],
    ["Arithmetic", record.arithmetic],
    ["Weights", whole(record.weights)],
  ];
}
