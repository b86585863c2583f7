// Individual: who it is, what its genome says, how it fared, and a film of it playing.

import { answers, available, filmPath, get, keptGenome, pause, runPath } from "./api.js";
import { announce, el, facts, figure, sentence, table, whole } from "./dom.js";
import { makePlayer } from "./player.js";
import { heading, idLink, runLinks, runOf, trail } from "./views.js";

const ENDS = { t: "terminated", l: "time limit", c: "cap" };

/** Show one individual of a run. */
export async function showIndividual(main, [key, , asked], signal) {
  const run = await runOf(key, signal);
  let one = await get(runPath(key, "individuals", asked), signal);
  const id = one.id;
  const lineage = runPath(key, "lineage", id);
  const who = el("div");
  const digest = el("div", { class: "digest", tabindex: "-1" });
  const genome = el("div");
  const episodes = el("div");
  const short = id.slice(0, 8);
  main.append(trail(run, "Individual"), heading(`Individual ${short}`, `${short} in ${run.name}`),
    runLinks(run, id === run.champion ? "champion" : ""), who, filmOf(),
    el("h2", { text: "Weights" }), digest, el("h2", { text: "Genome" }), genome,
    el("h2", { text: "Episodes" }), episodes);
  weigh();
  writeGenome();
  describe();
  if (one.read >= 1) return;
  while (one.read < 1 && !signal.aborted) {
    await pause(0.2, signal);
    one = await get(runPath(key, "individuals", id), signal);
  }
  describe();

  function describe() {
    const copy = el("button", { class: "small", text: "Copy", "aria-label": "Copy the id",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(id);
          announce("The id is copied");
          copy.textContent = "Copied";
        } catch {
          announce("The id cannot be copied here");
          copy.textContent = "Not possible here";
        }
      } });
    const ancestors = el("a", { href: `#/run/${key}/lineage/${id}`, text: "Show its ancestors" });
    who.replaceChildren(facts([
      ["Id", el("span", {}, el("code", { class: "id", text: id }), " ", copy)],
      ["Born in generation", whole(one.generation)],
      ["Parent", one.parent ? idLink(key, one.parent) : one.root.type === "birth"
        ? "none: it was born, not mutated" : "none: it is a centre, which moves as a whole"],
      ["Mean score", figure(one.mean)], ["Children", whole(one.children)],
      ["Failure", one.failure],
      ["Lineage", available(lineage) ? ancestors : null],
    ]));
    const rows = one.episodes.map((episode) => [whole(episode.generation), String(episode.phase),
      whole(episode.number), figure(episode.score), whole(episode.steps), whole(episode.frames),
      ENDS[episode.end] ?? "–"]);
    const heads = ["Generation", "Phase", "Number", "Score", "Steps", "Frames", "End"];
    const reading = one.read < 1 ? "; the run is still being read" : "";
    const phases = "In phase 0 the whole population plays, in phase 1 candidates play again.";
    episodes.replaceChildren(
      el("p", { text: `${whole(rows.length)} episodes, mean ${figure(one.mean)}${reading}. ${
        phases}` }),
      rows.length ? table("Episodes", heads, rows, "bounded") : "");
  }

  function filmOf() {
    const path = filmPath(key, id);
    if (one.unplayable || !available(path)) {
      const text = one.unplayable ?? "Its film is not part of the exported page.";
      return el("p", { class: "note", text });
    }
    const parent = one.parent && (!answers || available(filmPath(key, one.parent)));
    const player = makePlayer({
      source: (seed) => ({ path: filmPath(key, id, seed) }), title: short,
      fixed: answers !== null,
      beside: parent ? (seed) => ({ path: filmPath(key, one.parent, seed) }) : null,
      besideTitle: parent ? `its parent ${one.parent.slice(0, 8)}` : "",
      about: (about) => fill(about.digest, about.weights),
    }, signal);
    return player.place;
  }

  function fill(sha256, weights) {
    digest.replaceChildren(facts([["Digest", el("code", { class: "id long", text: sha256 })],
      ["Weights", whole(weights)]]));
  }

  function weigh() {
    const path = runPath(key, "individuals", id, "weights");
    if (!available(path)) {
      const text = "Their digest is not part of the exported page, unless the film tells it.";
      digest.replaceChildren(el("p", { class: "quiet", text }));
      return;
    }
    const button = el("button", { text: "Compute the weights' digest", onclick: async () => {
      button.disabled = true;
      button.textContent = "Decoding…";
      try {
        const answer = await get(path, signal);
        fill(answer.digest, answer.weights);
        digest.focus({ preventScroll: true });
        announce("The digest is computed");
      } catch (error) {
        if (!signal.aborted) digest.replaceChildren(button, sentence(error));
        button.disabled = false;
        button.textContent = "Compute the weights' digest";
      }
    } });
    digest.replaceChildren(button);
  }

  function writeGenome() {
    const { root, genes } = one;
    const from = root.type === "birth" ? `Born of seed ${root.seed}`
      : `Begun from a snapshot, SHA-256 ${root.sha256}`;
    const heads = ["Generation", "Individual", "Seed", "σ", "Operator"];
    const rows = genes.map((gene) => [whole(gene.generation), idLink(key, gene.id),
      String(gene.seed), figure(gene.sigma), gene.operator]);
    genome.replaceChildren(
      el("p", { class: "break", text: `${from}, then ${whole(genes.length)} genes.` }),
      genes.length ? table("Genes", heads, rows, "bounded") : "", download());
  }

  function download() {
    const path = runPath(key, "individuals", id, "genome");
    if (!available(path)) return "";
    const link = (href, name) => el("p", {},
      el("a", { class: "button", href, download: name, text: "Download genome" }));
    if (!answers) return link(path, true);
    const [name, blob] = keptGenome(path, id);
    const url = URL.createObjectURL(blob);
    signal.addEventListener("abort", () => URL.revokeObjectURL(url));
    return link(url, name);
  }
}
